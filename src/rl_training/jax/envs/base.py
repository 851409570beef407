"""Shared by the JAX environments: float32 boxes, grid pictures, and the time limit that `make` wraps around each."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.types import Array, EnvState, JaxEnv, Obs
from rl_training.types import BoxSpec


def box(low: Any, high: Any, shape: tuple[int, ...] | None = None) -> BoxSpec:
    """A float32 box between two bounds, which are sequences, or numbers with a shape."""
    shape = np.shape(high) if shape is None else shape
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), shape).copy() for bound in (low, high))
    return BoxSpec(low, high, np.dtype(np.float32))


def integers(key: Array, n: int, high: int) -> Array:
    """N random integers below a small `high`; compiles three times as fast as `jax.random.randint`."""
    return (jax.random.bits(key, (n,)) % high).astype(jnp.int32)


COLOURS = np.array([(245, 245, 240), (70, 70, 80), (240, 140, 30), (40, 160, 80), (40, 90, 200)], np.uint8)
FREE, WALL, BALL, GOAL, AGENT = range(len(COLOURS))
CELL_PIXELS = 24


def grid_picture(cells: Any) -> Any:
    """A picture (height, width, 3) uint8 of a grid of the cell types above."""
    squares = np.kron(np.asarray(cells), np.ones((CELL_PIXELS, CELL_PIXELS), int))
    picture = COLOURS[squares]
    picture[::CELL_PIXELS], picture[:, ::CELL_PIXELS] = 210, 210  # lines between the cells
    return picture


class Timed(NamedTuple):
    """The state of an environment with the number of steps of each episode."""

    inner: EnvState
    steps: Array


class TimeLimit:
    """`env`, truncated after `max_episode_steps`. The last step can also be terminated, as in Gymnasium."""

    def __init__(self, env: JaxEnv, max_episode_steps: int) -> None:
        self.env = env
        self.max_episode_steps = max_episode_steps
        self.observation_space = env.observation_space
        self.action_space = env.action_space

    def init(self, key: Array, n: int) -> Timed:
        return Timed(self.env.init(key, n), jnp.zeros(n, jnp.int32))

    def obs(self, state: Timed) -> Obs:
        return self.env.obs(state.inner)

    def step(self, state: Timed, action: Array, key: Array) -> tuple[Timed, Array, Array, Array]:
        inner, reward, terminated, truncated = self.env.step(state.inner, action, key)
        steps = state.steps + 1
        return Timed(inner, steps), reward, terminated, truncated | (steps >= self.max_episode_steps)
