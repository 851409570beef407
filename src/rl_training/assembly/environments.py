"""Environments that a run needs beside those it trains on: for evaluation, and for the functions of goals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_training.assembly.multi_agent.games import with_eval_opponent
from rl_training.config.schema import TrainConfig
from rl_training.envs import make_env
from rl_training.runs.names import env_fn_of
from rl_training.types import ConfigError

EnvFn = Callable[[], Any]
"""Makes one Gymnasium environment."""


def eval_env_maker(
    cfg: TrainConfig, env_fn: EnvFn | None, *, render: bool = False, window: bool = False
) -> Callable[[int], Any]:
    """A function that makes the i-th evaluation environment: the same stack without the wrappers for training only.
    They draw frames where they are to `render`, or show themselves in a `window`."""
    mode = "human" if window else "rgb_array" if render else None

    def make(index: int) -> Any:
        env = make_env(env_fn or cfg.env_id, cfg.env, seed=cfg.seed, index=index, training=False, render_mode=mode)
        return with_eval_opponent(env, cfg)

    return make


def need_env_fn(run: Path, cfg: TrainConfig, env_fn: EnvFn | None, verb: str) -> None:
    """Refuse to use a run whose environment was a function without that function."""
    name = env_fn_of(cfg.env_id)
    if name is not None and env_fn is None:
        raise ConfigError(
            f"run '{run.name}' was trained on the function '{name}' (env_fn=...), which is not stored with it; give it "
            f"again from Python: rl_training.{verb}('{run}', env_fn=...)"
        )


def goal_function(cfg: TrainConfig, env_fn: EnvFn | None, name: str, *, required: bool) -> Any:
    """A method (achieved, desired, info) of a goal environment: its rewards, or whether the goal ends the episode."""
    env = make_env(env_fn or cfg.env_id, cfg.env, seed=cfg.seed)
    function = getattr(env.unwrapped, name, None)
    if function is None:
        env.close()
    if function is None and required:
        raise ConfigError(
            f"buffer.type 'her' gives old transitions new goals: environment '{cfg.env_id}' needs a method "
            f"{name}(achieved_goal, desired_goal, info)"
        )
    return function
