"""A run, put together: trainer, callbacks, logs and checkpoints in one directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rl_training.assembly.environments import EnvFn
from rl_training.assembly.running.callbacks import build_callbacks, speaks
from rl_training.assembly.running.user_parts import UserParts
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.seal import SealCheck
from rl_training.config.schema import TrainConfig
from rl_training.logging.logger import Logger, Sink
from rl_training.logging.progress_display import Display
from rl_training.registry import loggers
from rl_training.runs.directory import RunDir
from rl_training.system.terminal_text import printable
from rl_training.training.callbacks import CheckpointCallback, ProgressCallback
from rl_training.training.loop import TrainerCallback
from rl_training.types import Stateful

if TYPE_CHECKING:
    from rl_training.assembly.build import AnyTrainer


@dataclass(frozen=True)
class Run:
    """Everything that a run consists of."""

    trainer: AnyTrainer
    callbacks: Sequence[TrainerCallback]
    """What happens between two train steps, in this order."""
    logger: Logger
    manager: CheckpointManager
    saver: CheckpointCallback
    """The callback that saves; it also restores a checkpoint into the trainer, the other callbacks and the logs."""
    display: Display


def assemble(
    cfg: TrainConfig,
    trainer: AnyTrainer,
    directory: RunDir,
    users: UserParts,
    sealing: SealCheck,
    env_fn: EnvFn | None = None,
) -> Run:
    """Connect a built trainer with its directory: logs, checkpoints and callbacks."""
    training = cfg.training
    logger = build_logger(cfg, directory, users.sinks)
    manager = build_manager(cfg, directory, logger, sealing)
    display = Display(training.budget, enabled=speaks(cfg), axis=trainer.progress.axis)
    callbacks = build_callbacks(cfg, trainer, directory, users, logger, display, env_fn)
    saver = CheckpointCallback(
        manager,
        trainer.guard,
        every=training.checkpoint_frequency,
        keep_best=cfg.checkpoint.keep_best,
        beside={name: part for name, part in callbacks.items() if isinstance(part, Stateful)},
        logs=logger,
    )
    everything = [*callbacks.values(), saver, ProgressCallback(display)]
    return Run(trainer, everything, logger, manager, saver, display)


def build_logger(cfg: TrainConfig, directory: RunDir, users: Sequence[Sink]) -> Logger:
    """JSONL always; TensorBoard, W&B and the sinks of the user where the config asks for them."""
    wanted = cfg.logging
    sinks: list[Any] = []
    if wanted.tensorboard:
        sinks.append(loggers.get("tensorboard")(directory.logs / "tensorboard"))
    if wanted.wandb.enabled:
        sinks.append(loggers.get("wandb")(wanted.wandb, directory))
    return Logger(directory.logs, [*sinks, *users], redact=directory.redactor.text)


def build_manager(cfg: TrainConfig, directory: RunDir, logger: Logger, sealing: SealCheck) -> CheckpointManager:
    """The checkpoints of the run; their messages go to the terminal and to train.log."""

    def report(line: str) -> None:
        logger.message(line)
        sys.stderr.write(printable(line) + "\n")

    return CheckpointManager(directory.path, **asdict(cfg.checkpoint), report=report, sealing=sealing)
