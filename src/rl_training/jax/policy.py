"""The policy of a JAX agent behind the package's `Policy` interface, for evaluation, export and loading.

MLPs, GRUs and LSTMs with simple activations act in NumPy on a host copy of the weights, which for a few rows is faster
than a compiled call; all other networks act in a jitted function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.export.graph import PolicyGraph
from rl_training.export.policies import Blueprint, graph_of
from rl_training.jax.dreaming import Dreams
from rl_training.jax.models.distributions import draw_numpy
from rl_training.jax.numerics.normalization import from_either_backend
from rl_training.jax.pytrees import restored, to_host, tree_state
from rl_training.jax.training import driver as compiled
from rl_training.numerics.encoding import from_bounds, to_bounds, to_env
from rl_training.types import ActResult, Array, BoxSpec, Carry, ConfigError, Dream, Obs, StateDict

if TYPE_CHECKING:
    from rl_training.build_context import BuildContext
    from rl_training.jax.host import HostAlgorithm


class Exported(NamedTuple):
    """A greedy policy as a pure function of raw observations (N, ...), independent of any run directory."""

    step: Callable[[Any, Any, Any], tuple[Any, Any]]
    """(obs, carry, is_first) -> actions for the environment, next carry"""
    initial_carry: Callable[[int], Any]
    """(N) -> the carry at the start of N episodes; empty without memory."""

    def __call__(self, obs: Any) -> Any:
        """Actions (N, ...) at the start of episodes; for a policy without memory, at any time."""
        count = len(jax.tree.leaves(obs)[0])
        return self.step(obs, self.initial_carry(count), np.ones(count, bool))[0]


class JaxPolicy:
    """Acts with the current state of an agent."""

    def __init__(self, agent: HostAlgorithm, ctx: BuildContext, *, in_numpy: bool) -> None:
        self.agent = agent
        self.observation_space, self.action_space = ctx.observation_space, ctx.action_space
        self.network_config = ctx.network
        self.in_numpy = in_numpy
        self.act_compiled = jax.jit(agent.functions.act, static_argnums=5)
        self.policy_compiled = jax.jit(agent.functions.policy)
        self.saved_env_steps = 0
        """Env steps of the checkpoint this policy was loaded from; outside of training, schedules such as epsilon are
        evaluated there."""
        self._acting: tuple[Any, int, Any] = (None, 0, None)
        """Cache of `acting`: a state, env steps, and the result for them."""

    def initial_carry(self, num_envs: int) -> Carry:
        carry: Carry = to_host(self.agent.functions.initial_carry(num_envs))
        return carry

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        functions = self.agent.functions
        noise = None if deterministic else draw_numpy(functions.noise, rng, len(is_first)).astype(np.float32)
        act = functions.act if self.in_numpy else self.act_compiled
        actions, carry, extras = act(self.acting(), obs, carry, is_first, noise, deterministic)
        if not self.in_numpy:
            actions, carry, extras = to_host((actions, carry, extras))
        return ActResult(actions, self._to_env(actions), carry, extras)

    def _to_env(self, actions: Array) -> Array:
        space = self.action_space
        if self.agent.functions.unit_actions and isinstance(space, BoxSpec):
            return to_bounds(space, actions)
        return to_env(space, actions)

    def export(self, kind: str) -> Exported:
        """The current greedy policy as a function: "jax" is jitted and can be part of a larger program, "numpy" runs in
        plain NumPy."""
        if kind not in ("jax", "numpy"):
            raise ConfigError(f"a policy is exported as 'jax' or 'numpy', not '{kind}'")
        in_jax, functions, acting = kind == "jax", self.agent.functions, self.acting()
        if not in_jax and not self.in_numpy:
            raise ConfigError("this network does not run in NumPy, as mlp and gru with tanh do; export it as 'jax'")
        if in_jax:
            acting = jax.tree.map(jnp.asarray, acting)
        bounded = partial(compiled.to_env, functions, self.action_space) if in_jax else self._to_env

        def step(obs: Any, carry: Any, is_first: Any) -> tuple[Any, Any]:
            actions, carry, _ = functions.act(acting, obs, carry, is_first, None, True)
            return bounded(actions), carry

        return Exported(jax.jit(step) if in_jax else step, self.initial_carry)

    def graph(self) -> PolicyGraph | None:
        """The greedy policy as a graph; None where the algorithm or its network is your own."""
        head = self.agent.functions.head
        if head is None:
            return None
        blueprint = Blueprint(self.observation_space, self.action_space, self.network_config, head)
        return graph_of(blueprint, self.state_dict())

    def acting(self) -> Any:
        """The parameters that acting needs, from the agent's current state, as NumPy arrays."""
        state, env_steps = self.agent.state, self.agent.progress.env_steps or self.saved_env_steps
        if self._acting[0] is not state or self._acting[1] != env_steps:
            self._acting = (state, env_steps, to_host(self.policy_compiled(state, np.float32(env_steps))))
        return self._acting[2]

    def state_dict(self) -> StateDict:
        state = self.agent.state
        env_steps = self.agent.progress.env_steps or self.saved_env_steps
        network, normalizer = tree_state(state.params), tree_state(state.normalizer)
        fields = state._asdict()
        further = {name: tree_state(fields[name]) for name in self.agent.functions.policy_fields}
        return {"network": network, "normalizer": normalizer, **further, "env_steps": env_steps}

    def load_state_dict(self, state: StateDict, /) -> None:
        agent, self.saved_env_steps = self.agent, int(state.get("env_steps", 0))
        fields = agent.state._asdict()
        agent.state = agent.state._replace(
            params=restored(agent.state.params, state["network"]),
            normalizer=restored(agent.state.normalizer, from_either_backend(state.get("normalizer", {}))),
            **{name: restored(fields[name], state.get(name), f"/{name}") for name in agent.functions.policy_fields},
        )


class DreamingPolicy(JaxPolicy):
    """A policy with a world model, which shows what it foresees."""

    def __init__(self, agent: HostAlgorithm, ctx: BuildContext, *, in_numpy: bool) -> None:
        super().__init__(agent, ctx, in_numpy=in_numpy)
        assert agent.functions.foresight is not None, "only for algorithms with a world model"
        self.dreams = Dreams(agent.functions.foresight)

    def dream(
        self, obs: Obs, actions: Array, rng: np.random.Generator, samples: int = 16, context: int | None = None
    ) -> Dream:
        """Futures of an episode that began with the observations `obs` (C, ...), of which the model sees the first
        `context`: `actions`, as the environment takes them, are those between them and those that follow."""
        count = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        if len(actions) < count - 1:
            raise ConfigError(
                f"{count} observations have {count - 1} actions between them, but there are {len(actions)}"
            )
        space = self.action_space
        stored = from_bounds(space, actions) if isinstance(space, BoxSpec) else actions
        seen = min(context or count, count)
        return self.dreams.of_episode(self.agent.state.params.model, (obs, stored), seen, rng, samples)
