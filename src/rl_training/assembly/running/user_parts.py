"""What a user gives: callbacks, loggers and alert rules, named or as objects; checked before a run has its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_training.config.schema import PartConfig, TrainConfig
from rl_training.envs.suites import reward_threshold
from rl_training.logging.logger import Sink
from rl_training.monitoring.alerts import TrainingMonitor
from rl_training.registry import Registry, callbacks, check_call, check_kwargs, check_methods, loggers
from rl_training.training.callbacks import Callback
from rl_training.types import ConfigError


@dataclass(frozen=True)
class UserParts:
    """Callbacks, loggers and alert rules that the config names."""

    callbacks: list[Callback]
    sinks: list[Sink]
    monitor: TrainingMonitor


def user_parts(
    cfg: TrainConfig, objects: Sequence[Callback] = (), env_fn: Callable[..., Any] | None = None
) -> UserParts:
    """Build what the config names, and take callbacks given as objects; a mistake leaves no run directory behind.

    With `env_fn` the environment is another than the config names.
    """
    hooks, derive = ("on_start", "on_step", "on_end"), "derive it from rl_training.Callback"
    for item in objects:
        if isinstance(item, type):
            raise ConfigError(f"callbacks: {item.__name__} is a class; give an object: callbacks=[{item.__name__}()]")
        check_methods(item, hooks, f"callback {object_name(item)}", derive)
    rows, protocol = ("log", "log_eval", "close"), "it needs what rl_training.logging.logger.Sink lists"
    return UserParts(
        [*(user_part(callbacks, part, "callbacks", hooks, derive) for part in cfg.callbacks), *objects],
        [user_part(loggers, part, "logging.sinks", rows, protocol) for part in cfg.logging.sinks],
        TrainingMonitor(
            cfg.monitor, total_timesteps=cfg.training.budget, solved_at=solved_at(cfg, known=env_fn is None)
        ),
    )


def split_callbacks(given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Separate callback objects from what a config could hold: names and mappings."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"callbacks: expected a list, such as callbacks=[MyCallback()], not {type(given).__name__}")
    named = [item for item in given if isinstance(item, str | Mapping | PartConfig)]
    return [item for item in given if not isinstance(item, str | Mapping | PartConfig)], named


def check_env_fn(env_fn: Any) -> None:
    """Refuse what cannot be called to make an environment."""
    if not callable(env_fn):
        raise ConfigError(
            f"env_fn is a {type(env_fn).__name__}; give a function or class that makes an environment: env_fn=MyEnv"
        )


def object_name(item: Any) -> str:
    """The name under which a run records a callback that was given as an object: its class."""
    return f"{type(item).__module__}.{type(item).__qualname__}"


def missing_objects(recorded: Any, given: Sequence[Callback]) -> list[str]:
    """Names of the callback objects that a run was trained with and that are not given again."""
    left = [object_name(item) for item in given]
    missing = []
    for name in recorded if isinstance(recorded, list) else ():
        if name in left:
            left.remove(name)
        else:
            missing.append(str(name))
    return missing


def solved_at(cfg: TrainConfig, *, known: bool = True) -> float | None:
    """The mean return that counts as solved: the goal in the config or that of a `known` environment, whichever is
    lower."""
    goals = [cfg.training.stop_at_return, reward_threshold(cfg.env_id) if known else None]
    return min((goal for goal in goals if goal is not None), default=None)


def user_part(registry: Registry, part: PartConfig, where: str, methods: Sequence[str], cure: str) -> Any:
    """Build one part, if it takes its arguments and has its methods."""
    creator, what = registry.get(part.name), f"{registry.kind} '{part.name}'"
    check_kwargs(creator, part.kwargs, what, where)
    check_call(creator, what, kwargs=part.kwargs)
    made = creator(**part.kwargs)
    check_methods(made, methods, what, cure)
    return made
