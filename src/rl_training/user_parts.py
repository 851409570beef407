"""Callbacks, loggers and alert rules that a config names, built and checked before the run has a directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rl_training.callbacks import Callback
from rl_training.config import PartConfig, TrainConfig
from rl_training.envs.suites import reward_threshold
from rl_training.logging import Sink
from rl_training.monitoring import TrainingMonitor
from rl_training.registry import Registry, callbacks, check_call, check_kwargs, check_methods, loggers


@dataclass(frozen=True)
class UserParts:
    """Callbacks, loggers and alert rules that the config names."""

    callbacks: list[Callback]
    sinks: list[Sink]
    monitor: TrainingMonitor


def user_parts(cfg: TrainConfig, env_fn: Callable[..., Any] | None = None) -> UserParts:
    """What the config names beyond the usual; a mistake in it leaves no run directory behind.

    With `env_fn` the environment is not the one that the config names.
    """
    hooks, derive = ("on_start", "on_step", "on_end"), "derive it from rl_training.Callback"
    rows, protocol = ("log", "log_eval", "close"), "it needs what rl_training.logging.Sink lists"
    return UserParts(
        [user_part(callbacks, part, "callbacks", hooks, derive) for part in cfg.callbacks],
        [user_part(loggers, part, "logging.sinks", rows, protocol) for part in cfg.logging.sinks],
        TrainingMonitor(
            cfg.monitor, total_timesteps=cfg.training.total_timesteps, solved_at=solved_at(cfg, known=env_fn is None)
        ),
    )


def solved_at(cfg: TrainConfig, *, known: bool = True) -> float | None:
    """The mean return at which a run has nothing left to learn: its own goal or that of a `known` environment, the
    lower of the two."""
    goals = [cfg.training.stop_at_return, reward_threshold(cfg.env_id) if known else None]
    return min((goal for goal in goals if goal is not None), default=None)


def user_part(registry: Registry, part: PartConfig, where: str, methods: Sequence[str], cure: str) -> Any:
    """One of them, if it takes its arguments and has its methods."""
    creator, what = registry.get(part.name), f"{registry.kind} '{part.name}'"
    check_kwargs(creator, part.kwargs, what, where)
    check_call(creator, what, kwargs=part.kwargs)
    made = creator(**part.kwargs)
    check_methods(made, methods, what, cure)
    return made
