"""Conservative Q-learning (Kumar et al. 2020, arXiv:2006.04779) for JAX, for continuous and for discrete actions.

The twin of `rl_training/algorithms/offline/cql.py`. The random numbers of an update are drawn together (`Draws`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.cql import SPEC, CQLConfig, dqn_config
from rl_training.hparams.sac import SACConfig
from rl_training.jax.algorithms.dqn import DeepQ, dqn_loss, of_actions
from rl_training.jax.algorithms.off_policy import State, Transitions, critic_loss, following, td_targets
from rl_training.jax.algorithms.sac import HYPER as SAC_HYPER
from rl_training.jax.algorithms.sac import SoftActorCritic, tanh_gaussian, temperature_loss
from rl_training.jax.models.distributions import masked
from rl_training.jax.models.networks import Params, action_mask
from rl_training.jax.traced_hparams import scheduled
from rl_training.jax.types import Batch, JaxAlgorithm, Metrics, Noise
from rl_training.types import DiscreteSpec

__all__ = ["HYPER", "SPEC", "CQLConfig", "calibrated", "conservative_penalty", "cql"]

HYPER = (*SAC_HYPER, "weight", "actor_learning_rate", "epsilon")
LOG_HALF = math.log(0.5)
"""Log-density of a uniform action in -1..1, per dimension."""


class Draws(NamedTuple):
    """Random numbers of one update, n actions per state."""

    target: Any
    """(B, A), normal: the next actions of the targets."""
    uniform: Any
    """(B, n, A) in -1..1: actions of the penalty."""
    here: Any
    """(B * n, A), normal: actions of the policy at the states, for the penalty."""
    there: Any
    """(B * n, A), normal: actions of the policy at the next states."""
    actor: Any
    """(B, A), normal: actions of the actor's loss."""


def conservative_penalty(values: Any, logprobs: Any, chosen: Any) -> Any:
    """logsumexp(Q(s, a_i) - log q(a_i)) - Q(s, a), averaged over the batch and summed over E critics; `values`
    (E, B, M), `logprobs` (B, M), `chosen` (E, B)."""
    return (jax.nn.logsumexp(values - logprobs, axis=2) - chosen).mean(1).sum()


def calibrated(values: Any, floors: Any, count: int) -> Any:
    """Values (E, B, M) of which those behind the first `count` are raised to the floors (B,)."""
    raised = jnp.maximum(values[:, :, count:], floors[None, :, None])
    return jnp.concatenate([values[:, :, :count], raised], axis=2)


def discrete_penalty(values: Any, chosen: Any, mask: Any = None) -> Any:
    """Mean of logsumexp Q(s, .) - Q(s, a) over the batch; `values` (B, A), those of the dataset's actions (B,)."""
    return (jax.nn.logsumexp(masked(values, mask), axis=1) - chosen).mean()


class ConservativeLearner(SoftActorCritic):
    """SAC with other targets and a penalty of the critics."""

    def __init__(self, ctx: BuildContext, hp: CQLConfig) -> None:
        super().__init__(ctx, cast(SACConfig, hp))
        self.options = hp
        online = ctx.progress.axis == "env_steps"
        self.calibrates = hp.calibrate == "always" or (hp.calibrate == "online" and online)

    def learn(self, state: State, batch: Batch, updates: Any, key: Any) -> tuple[State, Metrics]:
        rows, count = self.prepare(state, batch), self.options.num_sampled
        size = rows.rewards.shape[0]
        normal_key, uniform_key = jax.random.split(key)
        normal = jax.random.normal(normal_key, (2 + 2 * count, size, self.size))
        uniform = jax.random.uniform(uniform_key, (size, count, self.size), minval=-1.0, maxval=1.0)
        here, there = (part.reshape(-1, self.size) for part in (normal[2 : 2 + count], normal[2 + count :]))
        draws = Draws(normal[0], uniform, here, there, normal[1])
        rates = self.learning_rate(state, updates), scheduled(self.hp, "actor_learning_rate", state.hyper, updates)
        return self.conserve(state, rows, draws, rates)

    def conserve(self, state: State, rows: Transitions, draws: Draws, rates: tuple[Any, Any]) -> tuple[State, Metrics]:
        """One step of every network; `rates` are the step sizes of the critics, and of actor and temperature."""
        hyper, networks, moments = state.hyper, dict(state.networks), dict(state.optimizer)
        alpha = self.alpha(state)
        next_actions, _ = tanh_gaussian(self.actor.apply(state.params, rows.next_obs), draws.target)
        next_values = self.critics.apply(state.targets["critics"], rows.next_obs, next_actions).min(0)
        targets = td_targets(rows.rewards, rows.discounts, rows.terminated, next_values)
        compared = self.compared(state.params, rows, draws)
        improve = jax.grad(self.conservative_loss, has_aux=True)
        grads, metrics = improve(networks["critics"], rows, targets, compared, hyper["weight"])
        networks["critics"], moments["critics"], metrics["critic_grad_norm"] = self.step(
            networks["critics"], grads, moments["critics"], hyper, rates[0]
        )
        improve = jax.grad(self.actor_loss, has_aux=True)
        grads, (logprobs, loss) = improve(state.params, networks["critics"], rows.obs, draws.actor, alpha)
        params, moments["actor"], norm = self.step(state.params, grads, moments["actor"], hyper, rates[1])
        metrics |= {"actor_loss": loss, "entropy": -logprobs.mean(), "actor_grad_norm": norm, "alpha": alpha}
        if "temperature" in networks:
            loss, grads = jax.value_and_grad(
                lambda temperature: temperature_loss(temperature["log_alpha"], logprobs, self.target_entropy)
            )(networks["temperature"])
            metrics["temperature_loss"] = loss
            networks["temperature"], moments["temperature"], _ = self.step(
                networks["temperature"], grads, moments["temperature"], hyper, rates[1]
            )
        lagging = {"critics": following(state.targets["critics"], networks["critics"], hyper["tau"])}
        after = state._replace(params=params, networks=networks, targets=lagging, optimizer=moments)
        return after._replace(updates=state.updates + np.uint32(1)), metrics

    def compared(self, params: Params, rows: Transitions, draws: Draws) -> tuple[Any, Any]:
        """Actions (B, M, A) whose values at the states are pushed down, and their log-densities (B, M): uniform ones,
        and samples of the policy at the states and at the next ones."""
        count = self.options.num_sampled
        shape = (-1, count, self.size)
        actions, logprobs = [draws.uniform], [jnp.full(draws.uniform.shape[:2], self.size * LOG_HALF)]
        for obs, noise in ((rows.obs, draws.here), (rows.next_obs, draws.there)):
            outputs = jnp.repeat(self.actor.apply(params, obs), count, axis=0)
            drawn, densities = tanh_gaussian(outputs, noise)
            actions, logprobs = [*actions, drawn.reshape(shape)], [*logprobs, densities.reshape(-1, count)]
        return jnp.concatenate(actions, 1), jnp.concatenate(logprobs, 1)

    def conservative_loss(
        self, params: Params, rows: Transitions, targets: Any, compared: tuple[Any, Any], weight: Any
    ) -> tuple[Any, Metrics]:
        """Squared errors towards the Bellman targets, and the conservative penalty."""
        actions, logprobs = compared
        batch, count = logprobs.shape
        actions = jnp.concatenate([actions, rows.actions.reshape(batch, 1, -1)], 1)  # the dataset's action last
        obs = jax.tree.map(lambda leaf: jnp.repeat(leaf, count + 1, axis=0), rows.obs)
        values = self.critics.apply(params, obs, actions.reshape(-1, self.size)).reshape(-1, batch, count + 1)
        values, chosen = values[:, :, :-1], values[:, :, -1]
        if self.calibrates and rows.floors is not None:
            values = calibrated(values, rows.floors, self.options.num_sampled)
        penalty = conservative_penalty(values, logprobs, chosen)
        loss = critic_loss(chosen, targets) + weight * penalty
        return loss, {"critic_loss": loss, "value_mean": chosen.mean(), "penalty": penalty}


class DiscreteConservative(DeepQ):
    """Double DQN with a penalty, and a target that follows at every update."""

    def __init__(self, ctx: BuildContext, hp: CQLConfig) -> None:
        super().__init__(ctx, dqn_config(hp))

    def learn(self, state: State, batch: Batch, updates: Any, key: Any) -> tuple[State, Metrics]:
        rows, hyper = self.prepare(state, batch), state.hyper
        targets = self.targets_of(state, rows)
        improve = jax.grad(self.conservative_loss, has_aux=True)
        grads, metrics = improve(state.params, rows, targets, hyper["weight"])
        rate, moments = self.learning_rate(state, updates), state.optimizer["q"]
        params, moments, norm = self.step(state.params, grads, moments, hyper, rate)
        after = state._replace(params=params, optimizer={"q": moments}, updates=state.updates + np.uint32(1))
        after = after._replace(targets={"q": following(state.targets["q"], params, hyper["tau"])})
        return after, {**metrics, "grad_norm": norm, "epsilon": hyper["epsilon"]}

    def conservative_loss(self, params: Params, rows: Transitions, targets: Any, weight: Any) -> tuple[Any, Metrics]:
        """Huber loss of the values of the actions taken, and the conservative penalty."""
        values = self.q.apply(params, rows.obs)
        chosen = of_actions(values, rows.actions)
        losses, errors = dqn_loss(chosen, targets)
        penalty = discrete_penalty(values, chosen, action_mask(rows.obs))
        loss = losses.mean() + weight * penalty
        return loss, {"loss": loss, "value_mean": chosen.mean(), "td_error": errors.mean(), "penalty": penalty}


def cql(ctx: BuildContext, hp: CQLConfig) -> JaxAlgorithm:
    """The algorithm for the actions that the context has."""
    if isinstance(ctx.action_space, DiscreteSpec):
        deep, pair = DiscreteConservative(ctx, hp), Noise("uniform", (2,))
        functions = deep.algorithm(pair, deep.init, deep.act, deep.learn, exploration=lambda hyper, _: hyper["epsilon"])
        return functions._replace(head="values")
    parts = ConservativeLearner(ctx, hp)
    noise = Noise("normal", (parts.size,))
    return parts.algorithm(noise, parts.init, parts.act, parts.learn, unit_actions=True)._replace(head="gaussian")
