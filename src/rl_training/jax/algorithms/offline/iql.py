"""Implicit Q-learning (Kostrikov et al. 2021, arXiv:2110.06169) for JAX.

The twin of `rl_training/algorithms/offline/iql.py`: losses as pure functions, the actor that AWAC has too, then the
algorithm. Advantages and next values are those from before the state value moved.
"""

from __future__ import annotations

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.iql import SPEC, IQLConfig
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.jax.algorithms.off_policy import HYPER as OFF_POLICY_HYPER
from rl_training.jax.algorithms.off_policy import (
    Acting,
    Learner,
    State,
    Transitions,
    critic_loss,
    following,
    td_targets,
)
from rl_training.jax.models.action_values import actor, critics, state_value
from rl_training.jax.models.networks import Params, library
from rl_training.jax.numerics.normalization import normalized_obs
from rl_training.jax.pytrees import below, named
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics, Noise
from rl_training.numerics.initial_weights import POLICY_GAIN
from rl_training.types import BoxSpec

__all__ = ["HYPER", "SPEC", "IQLConfig", "SpreadLearner", "advantage_weights", "expectile_loss", "iql"]

HYPER = (*OFF_POLICY_HYPER, "tau", "expectile", "beta", "max_weight")
LOG_STD_RANGE = -20.0, 2.0
LOG_TWO_PI = math.log(2.0 * math.pi)


def expectile_loss(advantages: Any, expectile: Any) -> Any:
    """Mean of |expectile - 1(u < 0)| u^2 for u (B,): with 0.5 half the mean squared error."""
    weights = jnp.where(advantages < 0.0, 1.0 - expectile, expectile)
    return (weights * jnp.square(advantages)).mean()


def advantage_weights(advantages: Any, beta: Any, largest: Any) -> Any:
    """exp(beta u), at most `largest`; the exponent is cut first, so that nothing overflows."""
    return jnp.exp(jnp.minimum(beta * advantages, jnp.log(largest)))


class SpreadLearner(Learner):
    """Critics, and a Gaussian actor: its mean is within -1..1, its spread does not depend on the state."""

    def __init__(self, ctx: BuildContext, hp: Any) -> None:
        super().__init__(ctx, cast(OffPolicyHparams, hp))
        space = cast(BoxSpec, ctx.action_space)
        self.shape, self.size = space.shape, math.prod(space.shape)
        self.actor = actor(ctx.observation_space, self.size, ctx.network, gain=POLICY_GAIN)
        self.critics = critics(ctx.observation_space, self.size, ctx.network.critic, hp.num_critics)

    def initial_actor(self, rng: np.random.Generator) -> Params:
        return named("mean", self.actor.init(rng)) | {"log_std": np.zeros(self.size, np.float32)}

    def mean(self, params: Params, obs: Any) -> Any:
        outputs = self.actor.apply(below(params, "mean"), obs)
        return library(outputs).tanh(outputs)

    def drawn(self, params: Params, obs: Any, noise: Any) -> Any:
        """Actions (B, A), clipped to -1..1."""
        mean = self.mean(params, obs)
        xp = library(mean)
        return xp.clip(mean + xp.exp(xp.clip(params["log_std"], *LOG_STD_RANGE)) * noise, -1.0, 1.0)

    def imitation_loss(self, params: Params, rows: Transitions, weights: Any) -> Any:
        """Minus the log-densities of the dataset's actions, weighted by (B,) and averaged."""
        mean, log_std = self.mean(params, rows.obs), jnp.clip(params["log_std"], *LOG_STD_RANGE)
        errors = (rows.actions.reshape(mean.shape) - mean) / jnp.exp(log_std)
        logprobs = (-0.5 * jnp.square(errors) - log_std - 0.5 * LOG_TWO_PI).sum(1)
        return -(weights * logprobs).mean()

    def act(
        self, policy: Acting, obs: Any, carry: Any, is_first: Any, noise: Any, deterministic: bool
    ) -> tuple[Any, Any, dict[str, Any]]:
        seen = normalized_obs(policy.scales, obs)
        actions = self.mean(policy.params, seen) if deterministic else self.drawn(policy.params, seen, noise)
        return actions.reshape(-1, *self.shape), carry, {}

    def critic_objective(self, params: Params, rows: Transitions, targets: Any) -> tuple[Any, Any]:
        """Squared errors towards the targets, and the mean value."""
        values = self.critics.apply(params, rows.obs, rows.actions)
        return critic_loss(values, targets), values.mean()

    def functions(self, init: Any, learn: Any) -> JaxAlgorithm:
        """The algorithm as a record of functions."""
        noise = Noise("normal", (self.size,))
        return self.algorithm(noise, init, self.act, learn, unit_actions=True)._replace(head="deterministic")


class ImplicitLearner(SpreadLearner):
    """State value, critics, actor: three supervised problems in turn."""

    def __init__(self, ctx: BuildContext, hp: IQLConfig) -> None:
        super().__init__(ctx, hp)
        self.decays = hp.actor_decay
        self.value = state_value(ctx.observation_space, ctx.network.critic)

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        params, valuing = self.initial_actor(rng), self.critics.init(rng)
        networks = {"critics": valuing, "value": self.value.init(rng)}
        trained = {"actor": params, **networks}
        return self.state(params, hyper, networks=networks, targets={"critics": valuing}, trained=trained)

    def learn(self, state: State, batch: Batch, updates: Any, key: Any) -> tuple[State, Metrics]:
        rows, hyper = self.prepare(state, batch), state.hyper
        networks, moments, rate = dict(state.networks), dict(state.optimizer), self.learning_rate(state, updates)
        goals = self.critics.apply(state.targets["critics"], rows.obs, rows.actions).min(0)
        next_values = self.value.apply(networks["value"], rows.next_obs)
        targets = td_targets(rows.rewards, rows.discounts, rows.terminated, next_values)

        def value_objective(params: Params) -> tuple[Any, Any]:
            advantages = goals - self.value.apply(params, rows.obs)
            return expectile_loss(advantages, hyper["expectile"]), advantages

        metrics: Metrics = {}
        improve = jax.value_and_grad(value_objective, has_aux=True)
        (metrics["value_loss"], advantages), grads = improve(networks["value"])
        networks["value"], moments["value"], metrics["value_grad_norm"] = self.step(
            networks["value"], grads, moments["value"], hyper, rate
        )
        improve = jax.value_and_grad(self.critic_objective, has_aux=True)
        (metrics["critic_loss"], metrics["value_mean"]), grads = improve(networks["critics"], rows, targets)
        networks["critics"], moments["critics"], metrics["critic_grad_norm"] = self.step(
            networks["critics"], grads, moments["critics"], hyper, rate
        )
        weights = advantage_weights(advantages, hyper["beta"], hyper["max_weight"])
        metrics["actor_loss"], grads = jax.value_and_grad(self.imitation_loss)(state.params, rows, weights)
        params, moments["actor"], metrics["actor_grad_norm"] = self.step(
            state.params, grads, moments["actor"], hyper, rate * self.decay(hyper, updates)
        )
        metrics["advantage_mean"] = advantages.mean()
        lagging = {"critics": following(state.targets["critics"], networks["critics"], hyper["tau"])}
        after = state._replace(params=params, networks=networks, targets=lagging, optimizer=moments)
        return after._replace(updates=state.updates + np.uint32(1)), metrics

    def decay(self, hyper: Hyper, updates: Any) -> Any:
        """Share of the actor's step size that is left: falls to 0 along a cosine."""
        if not self.decays:
            return 1.0
        return 0.5 * (1.0 + jnp.cos(math.pi * jnp.clip(updates / hyper["total_timesteps"], 0.0, 1.0)))


def iql(ctx: BuildContext, hp: IQLConfig) -> JaxAlgorithm:
    """Values of the dataset's own actions, and an actor that imitates the better ones among them."""
    parts = ImplicitLearner(ctx, hp)
    return parts.functions(parts.init, parts.learn)
