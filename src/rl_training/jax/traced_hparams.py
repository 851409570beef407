"""Numeric hyperparameters as leaves of the state, so that a grid over them needs only one compiled program."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from rl_training.hparams.schedules import Schedule
from rl_training.jax.types import Hyper


def hyper_leaves(hparams: Any, names: Iterable[str], total_timesteps: int) -> Hyper:
    """The named fields of `hparams` as float32; None is left out, a schedule becomes [start, end]."""
    leaves: Hyper = {"total_timesteps": np.float32(total_timesteps)}
    for name in names:
        value = getattr(hparams, name)
        if isinstance(value, Schedule):
            leaves[name] = np.array([value.start, value.end], np.float32)
        elif value is not None:
            leaves[name] = np.float32(value)
    return leaves


def scheduled(hparams: Any, name: str, hyper: Hyper, env_steps: Any) -> Any:
    """The value of a leaf at `env_steps`. `hparams` only determines, at trace time, the shape of its schedule."""
    value, leaf = getattr(hparams, name), hyper[name]
    if not isinstance(value, Schedule):
        return leaf
    fraction = jnp.clip(env_steps / hyper["total_timesteps"], 0.0, 1.0)
    start, end = leaf[0], leaf[1]
    if value.type == "linear":
        return start + (end - start) * fraction
    if value.type == "cosine":
        return end + (start - end) * 0.5 * (1.0 + jnp.cos(math.pi * fraction))
    return start * (end / start) ** fraction
