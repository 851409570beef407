"""Observations with parts left out: the wrapper `select_observation`, for tasks that then need memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.suites import Env
from rl_training.types import Array, EnvError


class SelectObservation(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps the numbers at `indices` of a Box observation of one axis: CartPole without velocities is [0, 2]."""

    def __init__(self, env: Env, indices: Sequence[int]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise EnvError(f"wrapper 'select_observation' needs a Box of one axis, not {space}")
        size = space.shape[0]
        if not indices or any(not 0 <= index < size for index in indices):
            raise EnvError(
                f"wrapper 'select_observation': indices must be some of 0 to {size - 1}, not {list(indices)}"
            )
        self.indices = np.array(indices)
        self.observation_space = spaces.Box(
            space.low[self.indices], space.high[self.indices], dtype=np.dtype(space.dtype).type
        )

    def select(self, obs: Any) -> Array:
        return np.asarray(np.asarray(obs)[self.indices])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self.select(obs), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self.select(obs), reward, terminated, truncated, info
