"""Team probes of `rl_training.envs.probes.teams` in JAX: tiny problems of several agents with known answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.envs.probes.teams import PAYOFFS
from rl_training.jax.envs.base import box
from rl_training.jax.types import Array
from rl_training.types import DiscreteSpec


class TwoStepGame:
    """The two-step game of the QMIX paper (arXiv:1803.11485, section 5); the state (N,) is the place: 0, 2A or 2B."""

    agents = ("agent_0", "agent_1")
    observation_space = box(0.0, 1.0, (3,))
    state_space = box(-np.inf, np.inf, (3,))
    action_space = DiscreteSpec(2)
    max_episode_steps = None
    payoffs = np.stack([np.zeros((2, 2)), PAYOFFS[1], PAYOFFS[2]]).astype(np.float32)
    """Rewards (place, first action, second action)."""

    def init(self, key: Array, n: int) -> Array:
        return jnp.zeros(n, jnp.int32)

    def obs(self, state: Array) -> Array:
        return jnp.repeat(self.critic_state(state)[:, None], len(self.agents), axis=1)

    def critic_state(self, state: Array) -> Array:
        return jax.nn.one_hot(state, 3)

    def step(self, state: Array, action: Array, key: Array) -> tuple[Array, Array, Array, Array]:
        rewards = jnp.asarray(self.payoffs)[state, action[:, 0], action[:, 1]]
        terminated = state > 0
        after = jnp.where(terminated, state, 1 + action[:, 0].astype(jnp.int32))
        return after, jnp.repeat(rewards[:, None], len(self.agents), axis=1), terminated, jnp.zeros_like(terminated)
