"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905) for JAX, continuous actions.

The twin of `rl_training/algorithms/sac.py`: losses as pure functions, then the algorithm. Actions are stored as -1..1,
which is what the critics see. Hyperparameters are in `hparams/sac.py`.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.sac import SPEC, SACConfig
from rl_training.jax.algorithms.off_policy import HYPER as OFF_POLICY_HYPER
from rl_training.jax.algorithms.off_policy import (
    Acting,
    Learner,
    State,
    Transitions,
    critic_loss,
    following,
    td_targets,
    uniform_of,
)
from rl_training.jax.models.action_values import actor, critics
from rl_training.jax.models.networks import Params, library
from rl_training.jax.numerics.normalization import normalized_obs
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics, Noise
from rl_training.numerics.stable import HALF_LOG_2PI, LOG_STD_MAX, LOG_STD_MIN, raw_log_std
from rl_training.types import BoxSpec, ConfigError

__all__ = ["HYPER", "SPEC", "SACConfig", "actor_loss", "sac", "tanh_gaussian", "temperature_loss"]

HYPER = (*OFF_POLICY_HYPER, "tau", "alpha")


def actor_loss(logprobs: Any, values: Any, alpha: Any) -> Any:
    """Mean of alpha log pi - Q, (B,) each: high value, and entropy as far as the temperature rewards it."""
    return (alpha * logprobs - values).mean()


def temperature_loss(log_alpha: Any, logprobs: Any, target_entropy: float) -> Any:
    """Raises the temperature where the entropy -log pi is below its target."""
    return -(log_alpha * (logprobs + target_entropy)).mean()


def bounded_log_std(raw: Any) -> Any:
    return LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (library(raw).tanh(raw) + 1.0)


def tanh_gaussian(outputs: Any, noise: Any) -> tuple[Any, Any]:
    """Actions in -1..1 (B, A) and their log-densities (B,), in the form that stays exact where tanh saturates."""
    mean, raw = jnp.split(outputs, 2, axis=1)
    log_std = bounded_log_std(raw)
    pre_tanh = mean + jnp.exp(log_std) * noise
    gaussian = -0.5 * jnp.square(noise) - log_std - HALF_LOG_2PI
    volume = 2.0 * (math.log(2.0) - pre_tanh - jax.nn.softplus(-2.0 * pre_tanh))
    return jnp.tanh(pre_tanh), (gaussian - volume).sum(1)


class SoftActorCritic(Learner):
    """Maximum-entropy actor-critic; `update` is the whole algorithm."""

    hp: SACConfig

    def __init__(self, ctx: BuildContext, hp: SACConfig) -> None:
        super().__init__(ctx, hp)
        space = ctx.action_space
        if not isinstance(space, BoxSpec):
            raise ConfigError("sac with Discrete actions is not available with backend: jax; use backend: torch")
        self.shape, self.size = space.shape, math.prod(space.shape)
        self.actor = actor(ctx.observation_space, 2 * self.size, ctx.network, gain=1.0, layer="head.output")
        self.critics = critics(ctx.observation_space, self.size, ctx.network.critic, hp.num_critics)
        self.target_entropy = -float(self.size) if hp.target_entropy is None else hp.target_entropy

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        params, valuing = self.actor.init(rng), self.critics.init(rng)
        # a first policy of mean 0 and standard deviation 1 before the tanh
        params["head.output.weight"] *= np.float32(0.01)
        params["head.output.bias"][self.size :] = raw_log_std(0.0)
        networks: dict[str, Params] = {"critics": valuing}
        if self.hp.alpha is None:
            networks["temperature"] = {"log_alpha": np.zeros(1, np.float32)}
        trained = {"actor": params, **networks}
        return self.state(params, hyper, networks=networks, targets={"critics": valuing}, trained=trained)

    def act(
        self, policy: Acting, obs: Any, carry: Any, is_first: Any, noise: Any, deterministic: bool
    ) -> tuple[Any, Any, dict[str, Any]]:
        outputs = self.actor.apply(policy.params, normalized_obs(policy.scales, obs))
        xp, mean, raw = library(outputs), outputs[:, : self.size], outputs[:, self.size :]
        if deterministic:
            actions = xp.tanh(mean)
        else:
            drawn = xp.tanh(mean + xp.exp(bounded_log_std(raw)) * noise)
            actions = xp.where(policy.is_warmup, uniform_of(noise), drawn)
        return actions.reshape(-1, *self.shape), carry, {}

    def learn(self, state: State, batch: Batch, env_steps: Any, key: Any) -> tuple[State, Metrics]:
        rows = self.prepare(state, batch)
        noise = jax.random.normal(key, (2, rows.rewards.shape[0], self.size))
        return self.update(state, rows, noise, self.learning_rate(state, env_steps))

    def update(self, state: State, rows: Transitions, noise: Any, learning_rate: Any) -> tuple[State, Metrics]:
        """One step of every network; `noise` (2, B, A) is for the actions in the next states and in the states."""
        hyper, networks, moments = state.hyper, dict(state.networks), dict(state.optimizer)
        alpha = self.alpha(state)
        next_actions, next_logprobs = tanh_gaussian(self.actor.apply(state.params, rows.next_obs), noise[0])
        next_values = self.critics.apply(state.targets["critics"], rows.next_obs, next_actions).min(0)
        targets = td_targets(rows.rewards, rows.discounts, rows.terminated, next_values - alpha * next_logprobs)

        grads, metrics = jax.grad(self.critic_loss, has_aux=True)(networks["critics"], rows, targets)
        networks["critics"], moments["critics"], metrics["critic_grad_norm"] = self.step(
            networks["critics"], grads, moments["critics"], hyper, learning_rate
        )
        improve = jax.grad(self.actor_loss, has_aux=True)
        grads, (logprobs, loss) = improve(state.params, networks["critics"], rows.obs, noise[1], alpha)
        params, moments["actor"], norm = self.step(state.params, grads, moments["actor"], hyper, learning_rate)
        metrics |= {"actor_loss": loss, "entropy": -logprobs.mean(), "actor_grad_norm": norm, "alpha": alpha}
        if "temperature" in networks:
            loss, grads = jax.value_and_grad(
                lambda temperature: temperature_loss(temperature["log_alpha"], logprobs, self.target_entropy)
            )(networks["temperature"])
            metrics["temperature_loss"] = loss
            networks["temperature"], moments["temperature"], _ = self.step(
                networks["temperature"], grads, moments["temperature"], hyper, learning_rate
            )
        lagging = {"critics": following(state.targets["critics"], networks["critics"], hyper["tau"])}
        updates = state.updates + np.uint32(1)
        state = state._replace(params=params, networks=networks, targets=lagging, optimizer=moments, updates=updates)
        return state, metrics

    def alpha(self, state: State) -> Any:
        """Current temperature."""
        temperature = state.networks.get("temperature")
        return state.hyper["alpha"] if temperature is None else jnp.exp(temperature["log_alpha"][0])

    def critic_loss(self, params: Params, rows: Transitions, targets: Any) -> tuple[Any, Metrics]:
        values = self.critics.apply(params, rows.obs, rows.actions)
        loss = critic_loss(values, targets)
        return loss, {"critic_loss": loss, "value_mean": values.mean()}

    def actor_loss(self, params: Params, valuing: Params, obs: Any, noise: Any, alpha: Any) -> tuple[Any, Any]:
        actions, logprobs = tanh_gaussian(self.actor.apply(params, obs), noise)
        loss = actor_loss(logprobs, self.critics.apply(valuing, obs, actions).min(0), alpha)
        return loss, (logprobs, loss)


def sac(ctx: BuildContext, hp: SACConfig) -> JaxAlgorithm:
    """Maximum-entropy actor-critic with an ensemble of critics."""
    parts = SoftActorCritic(ctx, hp)
    noise = Noise("normal", (parts.size,))
    return parts.algorithm(noise, parts.init, parts.act, parts.learn, unit_actions=True)._replace(head="gaussian")
