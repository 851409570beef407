"""Catch: move a paddle under a ball that falls through a small grid (Mnih et al., 2014; bsuite's form).

Reward comes once, when the ball reaches the last row: 1 where the paddle is, -1 elsewhere. The observation is the grid
as a vector, 1 where the ball and the paddle are, or with `obs: pixels` as a grey image of 32 x 32 bytes, 255 there.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.envs.base import AGENT, BALL, box, grid_picture, integers
from rl_training.jax.types import Array
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec

PIXELS = 32
"""Height and width of the image with `obs: pixels`."""


class State(NamedTuple):
    row: Array
    column: Array
    paddle: Array


class Catch:
    max_episode_steps = None
    action_space = DiscreteSpec(3)
    """Left, stay, right."""

    def __init__(self, rows: int = 10, columns: int = 5, obs: Literal["vector", "pixels"] = "vector") -> None:
        if obs not in ("vector", "pixels"):
            raise ConfigError(f"Catch has obs 'vector' or 'pixels', not {obs!r}: change env.kwargs.obs")
        self.rows, self.columns, self.pixels = rows, columns, obs == "pixels"
        image = (PIXELS, PIXELS, 1)
        bytes_of = BoxSpec(np.zeros(image, np.uint8), np.full(image, 255, np.uint8), np.dtype(np.uint8))
        self.observation_space = bytes_of if self.pixels else box(0.0, 1.0, (rows * columns,))

    def init(self, key: Array, n: int) -> State:
        column = integers(key, n, self.columns)
        return State(jnp.zeros(n, jnp.int32), column, jnp.full(n, self.columns // 2, jnp.int32))

    def obs(self, state: State) -> Array:
        size = self.rows * self.columns
        ball = jax.nn.one_hot(state.row * self.columns + state.column, size)
        paddle = jax.nn.one_hot((self.rows - 1) * self.columns + state.paddle, size)
        grid = jnp.maximum(ball, paddle)
        if not self.pixels:
            return grid
        i, j = (jnp.arange(PIXELS) * side // PIXELS for side in (self.rows, self.columns))
        picture = grid.reshape(-1, self.rows, self.columns)[:, i][:, :, j, None]
        return (picture * 255).astype(jnp.uint8)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        paddle = jnp.clip(state.paddle + action - 1, 0, self.columns - 1)
        state = State(state.row + 1, state.column, paddle)
        terminated = state.row == self.rows - 1
        reward = jnp.where(state.column == paddle, 1.0, -1.0) * terminated
        return state, reward, terminated, jnp.zeros_like(terminated)

    def render(self, state: Any) -> Any:
        cells = np.zeros((self.rows, self.columns), int)
        cells[-1, state.paddle] = AGENT
        cells[state.row, state.column] = BALL
        return grid_picture(cells)
