"""Probe environments that need exploration: rewards that random actions practically never find."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.probes.control import Reset, Step, one_hot
from rl_training.types import Array


class DeepSea(gym.Env[Any, Any]):
    """A dive of `size` steps in which only one sequence of actions finds the treasure (Osband et al. 2019).

    Each step sinks one row and moves left or right; right costs 0.01 / size and pays 1 from the bottom right corner.
    Which action means right differs from cell to cell, drawn once from `mapping_seed` (None: action 1 is right
    everywhere). The observation is the one-hot cell, all zeros after the last row. Random actions find the treasure
    once in 2^size episodes, and an agent that follows the rewards learns to go left.
    """

    def __init__(self, size: int = 10, mapping_seed: int | None = 0) -> None:
        self.size = size
        self.observation_space = spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self.action_space = spaces.Discrete(2)
        rng = np.random.default_rng(mapping_seed)
        self.right = np.ones((size, size), int) if mapping_seed is None else rng.integers(0, 2, (size, size))
        """The action (row, column) that moves right."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.row = self.column = 0
        return self._obs(), {}

    def step(self, action: Any) -> Step:
        goes_right = int(action) == int(self.right[self.row, self.column])
        treasure = goes_right and self.column == self.size - 1
        reward = float(treasure) - 0.01 / self.size * goes_right
        self.row += 1
        self.column = min(max(self.column + (1 if goes_right else -1), 0), self.size - 1)
        return self._obs(), reward, self.row == self.size, False, {}

    def _obs(self) -> Array:
        if self.row == self.size:
            return np.zeros(self.size**2, np.float32)
        return one_hot(self.row * self.size + self.column, self.size**2)
