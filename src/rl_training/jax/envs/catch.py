"""Catch: move a paddle under a ball that falls through a small grid (Mnih et al., 2014; bsuite's form).

Reward comes once, when the ball reaches the last row: 1 where the paddle is, -1 elsewhere. The observation is the grid
as a vector, 1 where the ball and the paddle are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.envs.base import AGENT, BALL, box, grid_picture, integers
from rl_training.jax.types import Array
from rl_training.types import DiscreteSpec


class State(NamedTuple):
    row: Array
    column: Array
    paddle: Array


class Catch:
    max_episode_steps = None
    action_space = DiscreteSpec(3)
    """Left, stay, right."""

    def __init__(self, rows: int = 10, columns: int = 5) -> None:
        self.rows, self.columns = rows, columns
        self.observation_space = box(0.0, 1.0, (rows * columns,))

    def init(self, key: Array, n: int) -> State:
        column = integers(key, n, self.columns)
        return State(jnp.zeros(n, jnp.int32), column, jnp.full(n, self.columns // 2, jnp.int32))

    def obs(self, state: State) -> Array:
        size = self.rows * self.columns
        ball = jax.nn.one_hot(state.row * self.columns + state.column, size)
        paddle = jax.nn.one_hot((self.rows - 1) * self.columns + state.paddle, size)
        return jnp.maximum(ball, paddle)

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
