"""Four rooms: find the goal through the doors between four rooms (Sutton, Precup & Singh, 1999).

A move fails with `fail_probability` and goes in one of the other three directions; walls block it. The goal pays 1 and
ends the episode. The observation is the position of the agent and of the goal, each (row, column) scaled to [-1, 1].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.envs.base import AGENT, FREE, GOAL, WALL, box, grid_picture, integers
from rl_training.jax.types import Array
from rl_training.types import ConfigError, DiscreteSpec

PLAN = """
#############
#     #     #
#     #     #
#           #
#     #     #
#     #     #
## ####     #
#     ### ###
#     #     #
#     #     #
#           #
#     #     #
#############
"""
IS_FREE = np.array([[cell == " " for cell in row] for row in PLAN.split("\n")[1:-1]])
FREE_CELLS = np.argwhere(IS_FREE).astype(np.int32)
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)], np.int32)
"""Up, right, down, left."""


class State(NamedTuple):
    position: Array
    """(N, 2) row and column."""
    goal: Array


class FourRooms:
    max_episode_steps = 500
    observation_space = box(-1.0, 1.0, (4,))
    action_space = DiscreteSpec(4)

    def __init__(self, goal: tuple[int, int] | None = None, fail_probability: float = 1 / 3) -> None:
        """`goal` is (row, column); None draws one for each episode."""
        cells = [tuple(cell) for cell in FREE_CELLS.tolist()]
        if goal is not None and tuple(goal) not in cells:
            raise ConfigError(f"env.kwargs: goal {goal} is not a free cell of four rooms; (row, column) such as (8, 9)")
        self.goal = None if goal is None else cells.index(tuple(goal))
        self.fail_probability = fail_probability

    def init(self, key: Array, n: int) -> State:
        goal_key, start_key = jax.random.split(key)
        cells = len(FREE_CELLS)
        goal = integers(goal_key, n, cells) if self.goal is None else jnp.full(n, self.goal)
        start = integers(start_key, n, cells - 1)
        free = jnp.asarray(FREE_CELLS)
        return State(free[start + (start >= goal)], free[goal])  # any cell but the goal

    def obs(self, state: State) -> Array:
        return jnp.concatenate([state.position, state.goal], axis=-1) / 6.0 - 1.0

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        luck, turn = jax.random.uniform(key, (2, *action.shape))
        quarter_turns = jnp.where(luck < self.fail_probability, 1 + (3 * turn).astype(jnp.int32), 0)
        moved = state.position + jnp.asarray(MOVES)[(action + quarter_turns) % 4]
        is_free = jnp.asarray(IS_FREE)[moved[:, 0], moved[:, 1]]
        position = jnp.where(is_free[:, None], moved, state.position)
        terminated = (position == state.goal).all(axis=-1)
        return State(position, state.goal), terminated.astype(jnp.float32), terminated, jnp.zeros_like(terminated)

    def render(self, state: Any) -> Any:
        cells = np.where(IS_FREE, FREE, WALL)
        cells[tuple(state.goal)] = GOAL
        cells[tuple(state.position)] = AGENT
        return grid_picture(cells)
