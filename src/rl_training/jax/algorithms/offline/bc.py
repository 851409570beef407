"""Behavioural cloning for JAX: the twin of `rl_training/algorithms/offline/bc.py`."""

from __future__ import annotations

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.bc import SPEC, BCConfig
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.jax.algorithms.off_policy import HYPER, Acting, Learner, State, Transitions
from rl_training.jax.models.action_values import actor
from rl_training.jax.models.distributions import MASKED_LOGIT
from rl_training.jax.models.networks import Params, library
from rl_training.jax.numerics.normalization import normalized_obs
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics, Noise
from rl_training.numerics.initial_weights import POLICY_GAIN
from rl_training.types import ACTION_MASK, BoxSpec, DiscreteSpec

__all__ = ["HYPER", "SPEC", "BCConfig", "bc", "cloning_loss"]


def cloning_loss(actions: Any, data: Any) -> Any:
    """Squared errors of actions (B, A) in -1..1, averaged over batch and dimensions."""
    return jnp.square(actions - data.reshape(actions.shape)).mean()


class Cloning(Learner):
    """An actor alone."""

    def __init__(self, ctx: BuildContext, hp: BCConfig) -> None:
        super().__init__(ctx, cast(OffPolicyHparams, hp))
        space = ctx.action_space
        self.is_discrete = isinstance(space, DiscreteSpec)
        self.shape = () if isinstance(space, DiscreteSpec) else cast(BoxSpec, space).shape
        self.size = space.n if isinstance(space, DiscreteSpec) else math.prod(self.shape)
        layer = "head.output" if self.is_discrete else "output"
        self.actor = actor(ctx.observation_space, self.size, ctx.network, gain=POLICY_GAIN, layer=layer)

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        params = self.actor.init(rng)
        return self.state(params, hyper, networks={}, targets={}, trained={"actor": params})

    def outputs(self, params: Params, obs: Any) -> Any:
        """Actions in -1..1 (B, A), or logits, very low where a mask forbids an action."""
        outputs = self.actor.apply(params, obs)
        if not self.is_discrete:
            return library(outputs).tanh(outputs)
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        return outputs if mask is None else library(outputs).where(mask == 0, MASKED_LOGIT, outputs)

    def act(
        self, policy: Acting, obs: Any, carry: Any, is_first: Any, noise: Any, deterministic: bool
    ) -> tuple[Any, Any, dict[str, Any]]:
        outputs = self.outputs(policy.params, normalized_obs(policy.scales, obs))
        if not self.is_discrete:
            return outputs.reshape(-1, *self.shape), carry, {}
        return (outputs if deterministic else outputs + noise).argmax(1), carry, {}

    def learn(self, state: State, batch: Batch, updates: Any, key: Any) -> tuple[State, Metrics]:
        rows = self.prepare(state, batch)
        loss, grads = jax.value_and_grad(self.loss)(state.params, rows)
        rate, moments = self.learning_rate(state, updates), state.optimizer["actor"]
        params, moments, norm = self.step(state.params, grads, moments, state.hyper, rate)
        state = state._replace(params=params, optimizer={"actor": moments}, updates=state.updates + np.uint32(1))
        return state, {"actor_loss": loss, "actor_grad_norm": norm}

    def loss(self, params: Params, rows: Transitions) -> Any:
        """How far the actor is from the dataset's actions."""
        outputs = self.outputs(params, rows.obs)
        if not self.is_discrete:
            return cloning_loss(outputs, rows.actions)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(outputs), rows.actions[:, None].astype(jnp.int32), axis=1)
        return -chosen.mean()


def bc(ctx: BuildContext, hp: BCConfig) -> JaxAlgorithm:
    """Imitation of a dataset's actions."""
    parts = Cloning(ctx, hp)
    noise = Noise("gumbel" if parts.is_discrete else "normal", (parts.size,))
    functions = parts.algorithm(noise, parts.init, parts.act, parts.learn, unit_actions=True)
    return functions._replace(head="categorical" if parts.is_discrete else "deterministic")
