"""Parts of a user's own that need jax: an environment of pictures for the compiled lane."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.types import BoxSpec, DiscreteSpec


class State(NamedTuple):
    side: Any
    count: Any


class Squares:
    """A picture of 1 x 6 x 6 that is bright on the left or on the right; the action says where. Five steps."""

    observation_space = BoxSpec(np.zeros((1, 6, 6), np.uint8), np.full((1, 6, 6), 255, np.uint8), np.dtype(np.uint8))
    action_space = DiscreteSpec(2)
    max_episode_steps = None

    def init(self, key: Any, n: int) -> State:
        return State(jax.random.randint(key, (n,), 0, 2), jnp.zeros(n, jnp.int32))

    def obs(self, state: State) -> Any:
        columns = jnp.arange(6) // 3
        bright = columns[None, :] == state.side[:, None]  # (n, 6)
        rows = jnp.broadcast_to(bright[:, None, None, :], (len(state.side), 1, 6, 6))
        return jnp.where(rows, 250, 10).astype(jnp.uint8)

    def step(self, state: State, action: Any, key: Any) -> tuple[State, Any, Any, Any]:
        reward = (action == state.side).astype(jnp.float32)
        side = jax.random.randint(key, state.side.shape, 0, 2).astype(state.side.dtype)
        after = State(side, state.count + 1)
        terminated = after.count == 5
        return after, reward, terminated, jnp.zeros_like(terminated)
