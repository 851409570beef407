"""Running: from a config to a finished run directory.

`train` and `resume` are the two ways in. What they do is in their bodies, top to bottom; `assembly.py` builds parts.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from rl_training import index
from rl_training.alert_hooks import AlertHook
from rl_training.assembly import EnvFn, build_trainer, eval_env_maker
from rl_training.callbacks import (
    Callback,
    CheckpointCallback,
    EvalCallback,
    GuardCallback,
    LogCallback,
    ProgressCallback,
    VideoCallback,
)
from rl_training.checkpointing import CheckpointManager
from rl_training.config import TrainConfig
from rl_training.config_loading import config_to_mapping, load_config, parse_config, validate_config
from rl_training.devices import pinned_threads
from rl_training.envs.watch import EnvWatch
from rl_training.error_text import describe
from rl_training.eval import EvalResult, evaluate_policy
from rl_training.logging import Logger, Sink
from rl_training.monitoring import MonitorCallback
from rl_training.progress_display import Display
from rl_training.registry import loggers
from rl_training.runs import RunDir
from rl_training.secrets import with_secrets
from rl_training.signals import StopSignals, requeue_under_slurm
from rl_training.summary import final_metrics, finished_text, summary_text
from rl_training.terminal_text import printable
from rl_training.trainers.base import Trainer
from rl_training.types import (
    CheckpointError,
    Obs,
    RLTrainingError,
    Stateful,
    VectorStep,
)
from rl_training.user_parts import UserParts, user_parts
from rl_training.video import write_video

if TYPE_CHECKING:
    from rl_training.assembly import AnyTrainer
    from rl_training.trainers.compiled import CompiledTrainer

ConfigLike = TrainConfig | str | Path | Mapping[str, Any]
STOP_PATIENCE = 1.0
"""Seconds that a run which was asked to stop waits for the user's alert hook."""
Start = Literal["new", "resumed", "extended"]


@dataclass(frozen=True)
class TrainResult:
    """What a finished (or stopped) run left behind."""

    run_dir: Path
    checkpoint_path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    stop_reason: str = ""
    exit_code: int = 0


def train(
    cfg: ConfigLike,
    env_fn: EnvFn | None = None,
    *,
    init_from: str | None = None,
    source: str | None = None,
    argv: Sequence[str] = (),
    group: str | None = None,
    sweep: str | None = None,
    signals: StopSignals | None = None,
) -> TrainResult:
    """Train from a config object, a file, a preset name or a mapping, in a new run directory.

    `env_fn` builds your environment without registering it (a resume then needs it again).
    `init_from` is "RUN[:STEP]": start from that run's policy. `group` and `sweep` name what the run belongs to.
    `signals` is for a run in a thread: whoever started it asks it to stop through them.
    """
    written = as_config(cfg)
    cfg = with_secrets(written)
    with signals or StopSignals() as signals, EnvWatch(), pinned_threads(cfg.training.num_threads, cfg.backend):
        trainer = build_trainer(cfg, env_fn)
        try:
            users = user_parts(cfg, env_fn)
            if init_from is not None:
                warm_start(trainer, cfg, init_from)
            run = RunDir.create(written, source=source, argv=argv, parent=init_from, group=group, sweep=sweep)
            with run.lock():
                return execute(trainer, cfg, run, env_fn, users, signals)
        finally:
            trainer.close()


def resume(
    run: str | Path,
    *,
    total_timesteps: int | None = None,
    env_fn: EnvFn | None = None,
    signals: StopSignals | None = None,
) -> TrainResult:
    """Go on with a run from its newest sound checkpoint, as if it had never stopped.

    `total_timesteps` is the run's new budget from now on; a run that is finished goes on only with one.
    """
    directory = RunDir.open(run)
    with signals or StopSignals() as signals, EnvWatch(), directory.lock():
        cfg = directory.config()
        if total_timesteps is not None:
            directory.update_info(total_timesteps=total_timesteps)
        total = directory.info().get("total_timesteps") or cfg.training.total_timesteps
        cfg = replace(cfg, training=replace(cfg.training, total_timesteps=total))
        with pinned_threads(cfg.training.num_threads, cfg.backend):
            trainer = build_trainer(cfg, env_fn)
            try:
                users = user_parts(cfg, env_fn)
                start: Start = "resumed" if total_timesteps is None else "extended"
                return execute(trainer, cfg, directory, env_fn, users, signals, start=start)
            finally:
                trainer.close()


def execute(
    trainer: AnyTrainer,
    cfg: TrainConfig,
    run: RunDir,
    env_fn: EnvFn | None,
    users: UserParts,
    signals: StopSignals,
    *,
    start: Start = "new",
) -> TrainResult:
    """Run a built trainer inside its locked run directory and leave a record of how it ended."""
    logger = build_logger(cfg, run, users.sinks)
    manager = checkpoint_manager(cfg, run, logger)
    if cfg.logging.trace and hasattr(trainer, "collector"):
        trainer.collector.on_step = lambda step: log_transitions(logger, step)
    trainer.callbacks = build_callbacks(trainer, cfg, run, logger, manager, env_fn, users)
    total = cfg.training.total_timesteps
    if start != "new":
        restore(trainer, cfg, run, logger, manager)
        trainer.decided = None if start == "extended" else trainer.decided
        over = trainer.decided is not None or trainer.budget_spent(total)
        if over and run.info().get("status") == "finished":
            logger.close()
            show(finished_text(run, trainer), cfg)
            return result_of(trainer, run, "already finished")
    try:
        exact = trainer.exact and run.info().get("exact") is not False
        run.update_info(status="running", ended=None, exit_code=None, exact=exact, threads=threads_of(cfg))
        index.record(run.path)
        signals.bind(lambda why: trainer.request_stop(why, interrupted=True))
        reason = trainer.run(total)
        signals.saved = True
        stopped = trainer.interrupted
        result = result_of(trainer, run, reason, exit_code=(signals.exit_code or 0) if stopped else 0)
        words = summary_text(run, trainer, result.metrics, reason)
        logger.message(words)
        run.write_summary(result.metrics)
        run.finish(status="stopped" if stopped else "finished", exit_code=result.exit_code)
        # last: SLURM ends a job that is requeued
        if result.exit_code == 75 and (requeued := requeue_under_slurm()):
            logger.message(requeued)
            words = f"{words}\n{requeued}"
        for callback in trainer.callbacks:
            if isinstance(callback, MonitorCallback):
                callback.close(patience=STOP_PATIENCE if stopped else None)
        logger.close()
    except BaseException as error:
        record_failure(trainer, run, logger, error, saved=signals.saved)
        raise
    show(run.redactor.values(words), cfg)
    return result


def threads_of(cfg: TrainConfig) -> int:
    """Threads that one operation of the run may use: as asked for, but XLA keeps those it was started with."""
    if cfg.backend != "jax":
        return cfg.training.num_threads
    from rl_training.jax.runtime import threads

    return threads()


def result_of(trainer: Trainer, run: RunDir, reason: str, *, exit_code: int = 0) -> TrainResult:
    checkpoint = run.checkpoints / f"step_{trainer.progress.env_steps:012d}"
    return TrainResult(run.path, checkpoint, final_metrics(run, trainer, reason), reason, exit_code)


def restore(trainer: Trainer, cfg: TrainConfig, run: RunDir, logger: Logger, manager: CheckpointManager) -> None:
    """Bring a fresh trainer and the run directory to the newest sound checkpoint."""
    if not manager.steps() and not (run.logs / "metrics.jsonl").stat().st_size:
        # ended before the checkpoint of step 0 was there, so the beginning is where it was
        if parent := run.info().get("parent"):
            warm_start(trainer, cfg, parent)
        run.rewind(0)
        logger.message("resumed from the beginning: the run had no checkpoint yet")
        return
    checkpoint = manager.load_latest()
    trainer.load_state_dict(checkpoint.parts)
    manager.rewind(checkpoint.step)
    run.rewind(checkpoint.step)
    logger.message(f"resumed from {checkpoint.path.name}")


def record_failure(trainer: Trainer, run: RunDir, logger: Logger, error: BaseException, *, saved: bool) -> None:
    """Leave the terminal and the run directory in order; a full disk must not hide what really happened."""
    interrupted = isinstance(error, KeyboardInterrupt)
    for callback in trainer.callbacks:
        if not interrupted and hasattr(callback, "on_failure"):
            with suppress(Exception):
                callback.on_failure(trainer, error)
        if isinstance(callback, ProgressCallback):
            callback.display.close()
    if interrupted:
        state = "the last step is saved" if saved else "this step is not saved; the last checkpoint stands"
        sys.stderr.write(f"{state}: rl resume {printable(str(run.path))}\n")
    with suppress(OSError, RLTrainingError):
        logger.message(describe(error))
        logger.close()
    with suppress(OSError, RLTrainingError):
        run.finish(status="stopped" if interrupted else "failed", exit_code=130 if interrupted else 1)


def train_ppo(
    cfg: TrainConfig,
    total_timesteps: int | None = None,
    num_envs: int | None = None,
    num_steps: int | None = None,
) -> TrainResult:
    """PPO with the three sizes given by hand; everything else from `cfg`."""
    return train(
        replace(
            cfg,
            training=replace(cfg.training, total_timesteps=total_timesteps or cfg.training.total_timesteps),
            env=replace(cfg.env, num_envs=num_envs or cfg.env.num_envs),
            hparams=replace(cfg.hparams, num_steps=num_steps or cfg.hparams.num_steps),
        )
    )


# -- around a trainer -------------------------------------------------------------------------------------------------


def as_config(cfg: ConfigLike) -> TrainConfig:
    if isinstance(cfg, TrainConfig):
        return validate_config(cfg)
    return parse_config(cfg) if isinstance(cfg, Mapping) else load_config(cfg)


def build_callbacks(
    trainer: AnyTrainer,
    cfg: TrainConfig,
    run: RunDir,
    logger: Logger,
    manager: CheckpointManager,
    env_fn: EnvFn | None,
    users: UserParts,
) -> list[Any]:
    """The callbacks in their order; those with state become parts of the checkpoint."""
    training = cfg.training
    policy = trainer.algorithm.policy

    def evaluate(*, episodes: int, first: int = 0, record: bool = False) -> EvalResult:
        maker = eval_env_maker(cfg, env_fn, render=record)
        return evaluate_policy(policy, maker, episodes=episodes, seed=cfg.seed, first=first, record=record)

    callbacks: list[tuple[str, Any]] = [("guard", GuardCallback(trainer.guard))]
    if training.num_eval_episodes > 0:
        play = cast("CompiledTrainer", trainer).evaluate if training.eval_lane == "compiled" else evaluate
        callbacks.append(("eval", EvalCallback(play, logger, training)))
    if cfg.logging.video_frequency > 0:

        def record(path: Path) -> Path:
            result = evaluate(episodes=1, record=True)
            return write_video(path, result.frames, fps=result.fps)

        callbacks.append(("video", VideoCallback(record, run.videos, cfg.logging.video_frequency)))
    display = Display(training.total_timesteps, enabled=speaks(cfg))
    if users.monitor.rules:
        callbacks.append(("monitor", MonitorCallback(users.monitor, logger, display, alert_hook(cfg), run.path.name)))
    callbacks.append(("log", LogCallback(logger, cfg.logging.log_frequency)))
    if cfg.monitor.debug.enabled:
        callbacks.append(("debug", debug_callback(cfg, run, env_fn, display, logger)))
    callbacks += [(f"callback_{i}", callback) for i, callback in enumerate(users.callbacks)]
    keep_best = cfg.checkpoint.keep_best
    saver = CheckpointCallback(manager, trainer.guard, every=training.checkpoint_frequency, keep_best=keep_best)
    callbacks.append(("checkpoint", saver))
    callbacks.append(("progress", ProgressCallback(display)))
    trainer.attached = {name: part for name, part in callbacks if isinstance(part, Stateful)} | {"logs": logger}
    return [callback for _, callback in callbacks]


def build_logger(cfg: TrainConfig, run: RunDir, users: Sequence[Sink]) -> Logger:
    """JSONL always; TensorBoard, W&B and the user's own where the config asks for them."""
    wanted = cfg.logging
    sinks: list[Any] = []
    if wanted.tensorboard:
        sinks.append(loggers.get("tensorboard")(run.logs / "tensorboard"))
    if wanted.wandb.enabled:
        sinks.append(loggers.get("wandb")(wanted.wandb, run))
    return Logger(run.logs, [*sinks, *users], redact=run.redactor.text)


def alert_hook(cfg: TrainConfig) -> AlertHook | None:
    monitor = cfg.monitor
    wanted = monitor.command or monitor.url
    if not wanted:
        return None
    return AlertHook(monitor.command, monitor.url, timeout=monitor.hook_timeout, env=monitor.hook_env)


def debug_callback(cfg: TrainConfig, run: RunDir, env_fn: EnvFn | None, display: Display, logger: Logger) -> Callback:
    """Debug mode around the run's own updates."""
    from rl_training.debugging import DebugCallback
    from rl_training.envs import check_env

    def tell(text: str) -> None:
        logger.message(text)
        display.message(run.redactor.text(text))

    stored = run.config(secrets=False)
    return DebugCallback(
        run.debug,
        cfg.monitor.debug,
        config_to_mapping(replace(stored, training=cfg.training)),
        check_env=lambda: str(check_env(env_fn or cfg.env_id, cfg.env, seed=cfg.seed)),
        tell=tell,
    )


def show(text: str, cfg: TrainConfig) -> None:
    """A few lines for the person at the terminal."""
    if speaks(cfg):
        sys.stdout.write(printable(text, lines=True) + "\n")
        sys.stdout.flush()


def speaks(cfg: TrainConfig) -> bool:
    """Whether the run has the terminal: one of many in threads of a process leaves it to the group's table."""
    return cfg.logging.terminal and threading.current_thread() is threading.main_thread()


def log_transitions(logger: Logger, step: VectorStep) -> None:
    """Every transition of a step to trace.jsonl: for looking closely at short runs."""
    for i in np.flatnonzero(step.valid):
        logger.log_step(
            env=int(i),
            obs=row_of(step.obs, int(i)),
            action=step.actions[i],
            reward=step.rewards[i],
            next_obs=row_of(step.next_obs, int(i)),
            terminated=step.terminated[i],
            truncated=step.truncated[i],
        )


def row_of(obs: Obs, row: int) -> Any:
    return {name: column[row] for name, column in obs.items()} if isinstance(obs, dict) else obs[row]


# -- helpers ----------------------------------------------------------------------------------------------------------


def checkpoint_manager(cfg: TrainConfig, run: RunDir, logger: Logger) -> CheckpointManager:
    """The run's checkpoints; what they have to say goes to the terminal and to train.log."""

    def report(line: str) -> None:
        logger.message(line)
        sys.stderr.write(printable(line) + "\n")

    return CheckpointManager(run.path, **asdict(cfg.checkpoint), report=report)


def warm_start(trainer: Trainer, cfg: TrainConfig, init_from: str) -> None:
    """Load the policy of another run, its newest or the given step; everything else starts fresh."""
    name, _, step = init_from.partition(":") if not Path(init_from).exists() else (init_from, "", "")
    source = RunDir.open(name, cfg.output_dir)
    which = int(step) if step.isdigit() else (step or "latest")
    checkpoint = CheckpointManager(source.path).load(which, parts={"policy"})
    try:
        trainer.parts()["policy"].load_state_dict(checkpoint.parts["policy"])
    except (RuntimeError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"--init-from {init_from}: that policy does not fit this run's network or spaces ({error})"
        ) from error
