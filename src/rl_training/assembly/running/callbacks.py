"""The callbacks of a run, in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rl_training.assembly.environments import EnvFn, eval_env_maker
from rl_training.assembly.multi_agent.games import build_league
from rl_training.assembly.running.user_parts import UserParts
from rl_training.config.loading import config_to_mapping
from rl_training.config.schema import TrainConfig
from rl_training.data.datasets.info import DatasetInfo
from rl_training.data.datasets.recorder import FOLDER, StepRecorder
from rl_training.logging.dream_pictures import write_dream
from rl_training.logging.logger import Logger
from rl_training.logging.progress_display import Display
from rl_training.logging.video import write_video
from rl_training.monitoring.alert_hooks import AlertHook
from rl_training.monitoring.alerts import MonitorCallback
from rl_training.runs.directory import RunDir
from rl_training.training.callbacks import (
    Callback,
    EvalCallback,
    Evaluate,
    GuardCallback,
    LogCallback,
    TraceCallback,
    VideoCallback,
)
from rl_training.training.dreams import DreamCallback, Dreaming, SequenceReplay
from rl_training.training.evaluation import EvalResult, evaluate_policy
from rl_training.training.loop import TrainerCallback
from rl_training.training.offline.record_callback import RecordCallback
from rl_training.training.offline.trainer import OfflineTrainer
from rl_training.types import ConfigError, Dream, JointSpec, Policy

if TYPE_CHECKING:
    from rl_training.assembly.build import AnyTrainer
    from rl_training.training.compiled import CompiledTrainer


def build_callbacks(
    cfg: TrainConfig,
    trainer: AnyTrainer,
    run: RunDir,
    users: UserParts,
    logger: Logger,
    display: Display,
    env_fn: EnvFn | None,
) -> dict[str, TrainerCallback]:
    """All callbacks up to those of the user, by the names that checkpoints know those with state under."""
    found: dict[str, TrainerCallback] = {"guard": GuardCallback(trainer.guard)}
    if (league := build_league(cfg, trainer)) is not None:
        found["league"] = league
    play = partial(play_episodes, cfg, trainer.algorithm.policy, env_fn)
    if cfg.logging.trace:
        found["trace"] = TraceCallback(logger)
    if cfg.logging.record:
        if isinstance(trainer.spaces[0], JointSpec):
            raise ConfigError("logging.record: a dataset holds the episodes of a single agent")
        found["record"] = RecordCallback(build_recorder(cfg, trainer, run))
    if cfg.training.num_eval_episodes > 0:
        compiled = cfg.training.eval_lane == "compiled"
        evaluate: Evaluate = cast("CompiledTrainer", trainer).evaluate if compiled else play
        found["eval"] = EvalCallback(evaluate, logger, cfg.training, trainer.normalized_score)
    algorithm: Any = trainer.algorithm
    if isinstance(algorithm, Dreaming) and not isinstance(trainer, OfflineTrainer):
        buffer = cast(SequenceReplay, trainer.parts()["buffer"])
        found["dreams"] = DreamCallback(algorithm, buffer, cfg, partial(write_pictures, run))
    if cfg.logging.video_frequency > 0:
        found["video"] = VideoCallback(partial(record_video, run, play), run.videos, cfg.logging.video_frequency)
    if users.monitor.rules:
        found["monitor"] = MonitorCallback(users.monitor, logger, display, alert_hook(cfg), run.path.name)
    found["log"] = LogCallback(logger, cfg.logging.log_frequency)
    if cfg.monitor.debug.enabled:
        found["debug"] = debug_callback(cfg, run, env_fn, display, logger)
    return found | {f"callback_{i}": callback for i, callback in enumerate(users.callbacks)}


def build_recorder(cfg: TrainConfig, trainer: AnyTrainer, run: RunDir) -> StepRecorder:
    """Keeps the transitions of the run in its own folder."""
    policy = {"run": run.path.name, "algo": cfg.algo, "how": "training"}
    env = config_to_mapping(run.config(secrets=False))["env"]
    info = DatasetInfo(cfg.env_id, trainer.spaces, "env", env=env, policy=policy, seed=cfg.seed)
    return StepRecorder(run.path / FOLDER, info, cfg.env.num_envs)


def play_episodes(
    cfg: TrainConfig, policy: Policy, env_fn: EnvFn | None, *, episodes: int, first: int = 0, record: bool = False
) -> EvalResult:
    """Evaluation episodes of a run with the policy as it is now."""
    maker = eval_env_maker(cfg, env_fn, render=record)
    return evaluate_policy(policy, maker, episodes=episodes, seed=cfg.seed, first=first, record=record)


def record_video(run: RunDir, play: Callable[..., EvalResult], path: Path) -> Path:
    """Film one evaluation episode."""
    result = play(episodes=1, record=True)
    run.check_place()
    return write_video(path, result.frames, fps=result.fps)


def write_pictures(run: RunDir, dream: Dream, env_steps: int) -> None:
    """Store what a world model foresees as videos and plots of the run."""
    run.check_place()
    write_dream(dream, run.videos, run.plots, f"dream_{env_steps:012d}")


def alert_hook(cfg: TrainConfig) -> AlertHook | None:
    """What alerts are handed to, where the config names a command or an address."""
    monitor = cfg.monitor
    if not (monitor.command or monitor.url):
        return None
    return AlertHook(monitor.command, monitor.url, timeout=monitor.hook_timeout, env=monitor.hook_env)


def debug_callback(cfg: TrainConfig, run: RunDir, env_fn: EnvFn | None, display: Display, logger: Logger) -> Callback:
    """Debug mode around the updates of the run."""
    from rl_training.envs import check_env
    from rl_training.monitoring.debug_mode import DebugCallback

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


def speaks(cfg: TrainConfig) -> bool:
    """Whether the run prints to the terminal: one of several runs in threads leaves that to the table of its group."""
    return cfg.logging.terminal and threading.current_thread() is threading.main_thread()
