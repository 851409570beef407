"""What the environments of this folder share: boxes of float32, and the time limit that `make` puts around each."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.types import Array, EnvState, JaxEnv, Obs
from rl_training.types import BoxSpec


def box(low: Any, high: Any, shape: tuple[int, ...] | None = None) -> BoxSpec:
    """The float32 box between two bounds: sequences, or numbers together with a shape."""
    shape = np.shape(high) if shape is None else shape
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), shape).copy() for bound in (low, high))
    return BoxSpec(low, high, np.dtype(np.float32))


def integers(key: Array, n: int, high: int) -> Array:
    """N integers below `high`, which is small. `jax.random.randint` would take three times as long to compile."""
    return (jax.random.bits(key, (n,)) % high).astype(jnp.int32)


COLOURS = np.array([(245, 245, 240), (70, 70, 80), (240, 140, 30), (40, 160, 80), (40, 90, 200)], np.uint8)
FREE, WALL, BALL, GOAL, AGENT = range(len(COLOURS))
CELL_PIXELS = 24


def grid_picture(cells: Any) -> Any:
    """A grid of the numbers above as a picture, (height, width, 3) bytes."""
    squares = np.kron(np.asarray(cells), np.ones((CELL_PIXELS, CELL_PIXELS), int))
    picture = COLOURS[squares]
    picture[::CELL_PIXELS], picture[:, ::CELL_PIXELS] = 210, 210  # lines between the cells
    return picture


class Timed(NamedTuple):
    """An environment's state and how long the episodes have lasted."""

    inner: EnvState
    steps: Array


class TimeLimit:
    """`env`, truncated after `max_episode_steps`. The last step can be terminated too, as in Gymnasium."""

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
