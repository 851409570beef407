"""Advantage-weighted actor-critic (Nair et al. 2020, arXiv:2006.09359) for JAX.

The twin of `rl_training/algorithms/offline/awac.py`; the actor is that of IQL.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.awac import SPEC, AWACConfig
from rl_training.jax.algorithms.off_policy import HYPER as OFF_POLICY_HYPER
from rl_training.jax.algorithms.off_policy import State, Transitions, following, td_targets
from rl_training.jax.algorithms.offline.iql import SpreadLearner, advantage_weights
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics

__all__ = ["HYPER", "SPEC", "AWACConfig", "awac"]

HYPER = (*OFF_POLICY_HYPER, "tau", "temperature", "max_weight")


class WeightedLearner(SpreadLearner):
    """Critics of the policy's own actions, and an actor that imitates."""

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        params, valuing = self.initial_actor(rng), self.critics.init(rng)
        trained = {"actor": params, "critics": valuing}
        return self.state(params, hyper, networks={"critics": valuing}, targets={"critics": valuing}, trained=trained)

    def learn(self, state: State, batch: Batch, updates: Any, key: Any) -> tuple[State, Metrics]:
        rows = self.prepare(state, batch)
        noise = jax.random.normal(key, (2, rows.rewards.shape[0], self.size))
        return self.update(state, rows, noise, self.learning_rate(state, updates))

    def update(self, state: State, rows: Transitions, noise: Any, rate: Any) -> tuple[State, Metrics]:
        """One step of the critics, then one of the actor with what they now say; `noise` (2, B, A) is for the actions
        in the next states and in the states."""
        hyper, moments, metrics = state.hyper, dict(state.optimizer), dict[str, Any]()
        next_actions = self.drawn(state.params, rows.next_obs, noise[0])
        next_values = self.critics.apply(state.targets["critics"], rows.next_obs, next_actions).min(0)
        targets = td_targets(rows.rewards, rows.discounts, rows.terminated, next_values)
        improve = jax.value_and_grad(self.critic_objective, has_aux=True)
        (metrics["critic_loss"], metrics["value_mean"]), grads = improve(state.networks["critics"], rows, targets)
        valuing, moments["critics"], metrics["critic_grad_norm"] = self.step(
            state.networks["critics"], grads, moments["critics"], hyper, rate
        )
        own = self.drawn(state.params, rows.obs, noise[1])
        values = self.critics.apply(valuing, rows.obs, rows.actions).min(0)
        advantages = values - self.critics.apply(valuing, rows.obs, own).min(0)
        weights = advantage_weights(advantages, 1.0 / hyper["temperature"], hyper["max_weight"])
        metrics["actor_loss"], grads = jax.value_and_grad(self.imitation_loss)(state.params, rows, weights)
        params, moments["actor"], metrics["actor_grad_norm"] = self.step(
            state.params, grads, moments["actor"], hyper, rate
        )
        metrics["advantage_mean"] = advantages.mean()
        lagging = {"critics": following(state.targets["critics"], valuing, hyper["tau"])}
        after = state._replace(params=params, networks={"critics": valuing}, targets=lagging, optimizer=moments)
        return after._replace(updates=state.updates + np.uint32(1)), metrics


def awac(ctx: BuildContext, hp: AWACConfig) -> JaxAlgorithm:
    """An actor that imitates the dataset's actions, weighted by how much better than its own they are."""
    parts = WeightedLearner(ctx, hp)
    return parts.functions(parts.init, parts.learn)
