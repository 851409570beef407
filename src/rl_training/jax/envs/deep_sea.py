"""Deep sea: a dive of `size` steps in which only one sequence of actions finds the treasure (Osband et al., 2019).

Each step sinks one row and moves left or right; right costs 0.01 / size and pays 1 from the bottom right corner. Which
action means right differs from cell to cell, drawn once from `mapping_seed` (None: action 1 is right everywhere).
Random actions find the treasure once in 2^size episodes, so the problem needs deep exploration. The observation is the
one-hot cell, all zeros after the last row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.envs.base import AGENT, GOAL, box, grid_picture
from rl_training.jax.types import Array
from rl_training.types import DiscreteSpec


class State(NamedTuple):
    row: Array
    column: Array


class DeepSea:
    max_episode_steps = None
    action_space = DiscreteSpec(2)

    def __init__(self, size: int = 10, mapping_seed: int | None = 0) -> None:
        self.size = size
        self.observation_space = box(0.0, 1.0, (size * size,))
        rng = np.random.default_rng(mapping_seed)
        self.right = np.ones((size, size), np.int32) if mapping_seed is None else rng.integers(0, 2, (size, size))

    def init(self, key: Array, n: int) -> State:
        return State(jnp.zeros(n, jnp.int32), jnp.zeros(n, jnp.int32))

    def obs(self, state: State) -> Array:
        return jax.nn.one_hot(state.row * self.size + state.column, self.size**2)  # below the last row: zeros

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        row, column = state
        goes_right = action == jnp.asarray(self.right)[row, column]
        treasure = goes_right & (column == self.size - 1)
        reward = 1.0 * treasure - 0.01 / self.size * goes_right
        column = jnp.clip(jnp.where(goes_right, column + 1, column - 1), 0, self.size - 1)
        terminated = row + 1 == self.size
        return State(row + 1, column), reward, terminated, jnp.zeros_like(terminated)

    def render(self, state: Any) -> Any:
        """A picture with one more row, in which a dive ends."""
        cells = np.zeros((self.size + 1, self.size), int)
        cells[self.size - 1, -1] = GOAL
        cells[state.row, state.column] = AGENT
        return grid_picture(cells)
