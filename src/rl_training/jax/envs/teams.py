"""Agents as rows: a JAX environment of several agents as one whose rows are agents, for the compiled loop.

Row n * A + a is agent a of environment n. Agents of an environment end together, and its state has one row for all.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.envs.base import Timed, TimeLimit
from rl_training.jax.types import Array, EnvState, JaxTeamEnv
from rl_training.numerics.agents import LONE
from rl_training.types import AGENT_ID, CRITIC_STATE, BoxSpec, LeafSpec, SpaceSpec

Shown = Literal["none", "env", "concat"]


class TeamTimeLimit(TimeLimit):
    """A team environment, truncated after `max_episode_steps`."""

    observation_space: BoxSpec
    action_space: LeafSpec

    def __init__(self, env: JaxTeamEnv, max_episode_steps: int) -> None:
        super().__init__(env, max_episode_steps)
        self.team = env
        self.agents, self.state_space = env.agents, env.state_space

    def critic_state(self, state: Timed) -> Array:
        return self.team.critic_state(state.inner)


class AgentRows:
    """The agents of `env` as rows, in a `space` that may hold the agent's number and the state that critics see."""

    max_episode_steps = None

    def __init__(self, env: JaxTeamEnv, space: SpaceSpec, *, ids: bool, state: Shown) -> None:
        self.env, self.ids, self.state = env, ids, state
        self.observation_space = space
        self.action_space: LeafSpec = env.action_space
        self.count = len(env.agents)

    def init(self, key: Array, n: int) -> EnvState:
        """The initial states of n / A environments, for n rows."""
        return self.env.init(key, n // self.count)

    def obs(self, state: EnvState) -> Any:
        seen = self.env.obs(state)  # (N, A, ...)
        rows = {LONE: folded(seen)}
        if self.ids:
            rows[AGENT_ID] = jnp.asarray(np.tile(np.arange(self.count, dtype=np.int32), len(seen)))
        if self.state != "none":
            shown = self.env.critic_state(state) if self.state == "env" else seen.reshape(len(seen), -1)
            rows[CRITIC_STATE] = jnp.repeat(shown, self.count, axis=0)
        return rows if len(rows) > 1 else rows[LONE]

    def step(self, state: EnvState, action: Array, key: Array) -> tuple[EnvState, Array, Array, Array]:
        actions = action.reshape(-1, self.count, *action.shape[1:])
        state, rewards, *ends = self.env.step(state, actions, key)
        terminated, truncated = (jnp.repeat(flags, self.count) for flags in ends)
        return state, rewards.reshape(-1), terminated, truncated


def folded(values: Any) -> Any:
    """(N, A, ...) to rows (N * A, ...), for an array or a dict of them."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), values)
