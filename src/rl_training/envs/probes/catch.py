"""Catch as a Gymnasium environment: the game of `jax/envs/catch.py`, step by step."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.probes.control import Reset, Step
from rl_training.types import Array, ConfigError

PIXELS = 32
"""Height and width of the image with `obs: pixels`."""
CELL_PIXELS = 24
"""Pixels of a cell in rendered pictures."""


class Catch(gym.Env[Any, Any]):
    """A ball falls through a small grid; move the paddle under it: reward 1 if it is caught, -1 if not.

    Reward comes once, when the ball reaches the last row. With `obs: vector` the observation is the grid, 1 where the
    ball and the paddle are; with `obs: pixels` the same as a grey image of 32 x 32 bytes, 255 where they are.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's way

    def __init__(
        self,
        rows: int = 10,
        columns: int = 5,
        obs: Literal["vector", "pixels"] = "vector",
        render_mode: str | None = None,
    ) -> None:
        if obs not in ("vector", "pixels"):
            raise ConfigError(f"Catch has obs 'vector' or 'pixels', not {obs!r}: change env.kwargs.obs")
        self.rows, self.columns, self.obs, self.render_mode = rows, columns, obs, render_mode
        vector = spaces.Box(0.0, 1.0, (rows * columns,), np.float32)
        image = spaces.Box(0, 255, (PIXELS, PIXELS, 1), np.uint8)
        self.observation_space = image if obs == "pixels" else vector
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.row, self.column = 0, int(self.np_random.integers(self.columns))
        self.paddle = self.columns // 2
        return self._observed(), {}

    def step(self, action: Any) -> Step:
        self.paddle = min(max(self.paddle + int(action) - 1, 0), self.columns - 1)
        self.row += 1
        ended = self.row == self.rows - 1
        reward = (1.0 if self.column == self.paddle else -1.0) if ended else 0.0
        return self._observed(), reward, ended, False, {}

    def render(self) -> Any:
        """The grid as a picture of squares."""
        squares = np.kron(self._grid(), np.ones((CELL_PIXELS, CELL_PIXELS), np.float32))
        return np.repeat((255 * squares).astype(np.uint8)[:, :, None], 3, axis=2)

    def _grid(self) -> Array:
        grid = np.zeros((self.rows, self.columns), np.float32)
        grid[self.row, self.column] = grid[-1, self.paddle] = 1.0
        return grid

    def _observed(self) -> Array:
        grid = self._grid()
        if self.obs == "vector":
            return grid.reshape(-1)
        i, j = (np.arange(PIXELS) * side // PIXELS for side in grid.shape)
        image: Array = (grid[i][:, j, None] * 255).astype(np.uint8)
        return image
