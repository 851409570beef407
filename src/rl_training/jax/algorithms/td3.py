"""Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477) for JAX.

The twin of `rl_training/algorithms/td3.py`. One call of `learn` is `actor_every_updates` updates of the critics, as a
scan, and then one of the actor and the targets: the delay is the shape of the program, not a branch in it. Actions are
stored as -1..1. Hyperparameters are in `hparams/td3.py`.
"""

from __future__ import annotations

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.td3 import SPEC, TD3Config
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
from rl_training.jax.models.optimization import OptimizerState
from rl_training.jax.numerics.normalization import normalized_obs
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics, Noise
from rl_training.numerics.initial_weights import POLICY_GAIN
from rl_training.types import BoxSpec

__all__ = ["HYPER", "SPEC", "TD3Config", "smoothed", "td3"]

HYPER = (*OFF_POLICY_HYPER, "tau", "exploration_noise", "target_noise", "target_noise_clip")


def smoothed(actions: Any, noise: Any, scale: Any, clip: Any) -> Any:
    """Target actions plus noise clipped to +-clip, the sum clipped to the -1..1 of actions."""
    return jnp.clip(actions + jnp.clip(scale * noise, -clip, clip), -1.0, 1.0)


class TwinDelayed(Learner):
    """Deterministic actor-critic: critics at every update, actor and targets at the last of each call."""

    hp: TD3Config

    def __init__(self, ctx: BuildContext, hp: TD3Config) -> None:
        super().__init__(ctx, hp)
        self.shape = cast(BoxSpec, ctx.action_space).shape
        self.size = math.prod(self.shape)
        self.actor = actor(ctx.observation_space, self.size, ctx.network, gain=POLICY_GAIN)
        self.critics = critics(ctx.observation_space, self.size, ctx.network.critic, hp.num_critics)

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        params, valuing = self.actor.init(rng), self.critics.init(rng)
        both = {"actor": params, "critics": valuing}
        return self.state(params, hyper, networks={"critics": valuing}, targets=both, trained=both)

    def actions(self, params: Params, obs: Any) -> Any:
        outputs = self.actor.apply(params, obs)
        return library(outputs).tanh(outputs)  # (B, A)

    def act(
        self, policy: Acting, obs: Any, carry: Any, is_first: Any, noise: Any, deterministic: bool
    ) -> tuple[Any, Any, dict[str, Any]]:
        actions = self.actions(policy.params, normalized_obs(policy.scales, obs))
        if not deterministic:
            xp = library(actions)
            explored = xp.clip(actions + policy.exploration * noise, -1.0, 1.0)
            actions = xp.where(policy.is_warmup, uniform_of(noise), explored)
        return actions.reshape(-1, *self.shape), carry, {}

    def learn(self, state: State, batch: Batch, env_steps: Any, key: Any) -> tuple[State, Metrics]:
        rows = self.prepare(state, batch)
        batches = jax.tree.map(lambda x: x.reshape(self.hp.actor_every_updates, -1, *x.shape[1:]), rows)
        noise = jax.random.normal(key, (*batches.rewards.shape, self.size))
        return self.update(state, batches, noise, self.learning_rate(state, env_steps))

    def update(self, state: State, batches: Transitions, noise: Any, learning_rate: Any) -> tuple[State, Metrics]:
        """K updates of the critics on batches (K, B, ...) with noise (K, B, A), and one of the actor on the last."""
        hyper, moments = state.hyper, dict(state.optimizer)

        def improve_critics(
            carried: tuple[Params, OptimizerState], inputs: tuple[Transitions, Any]
        ) -> tuple[Any, Metrics]:
            (params, optimizer), (rows, noise) = carried, inputs
            targets = self.targets_of(state, rows, noise)
            grads, metrics = jax.grad(self.critic_loss, has_aux=True)(params, rows, targets)
            params, optimizer, norm = self.step(params, grads, optimizer, hyper, learning_rate)
            return (params, optimizer), {**metrics, "critic_grad_norm": norm}

        begin = (state.networks["critics"], moments["critics"])
        (valuing, moments["critics"]), records = jax.lax.scan(improve_critics, begin, (batches, noise))
        last = jax.tree.map(lambda x: x[-1], batches)
        loss, grads = jax.value_and_grad(self.actor_loss)(state.params, valuing, last, hyper)
        params, moments["actor"], norm = self.step(state.params, grads, moments["actor"], hyper, learning_rate)
        metrics = {name: column.mean() for name, column in records.items()}
        lagging = {
            "actor": following(state.targets["actor"], params, hyper["tau"]),
            "critics": following(state.targets["critics"], valuing, hyper["tau"]),
        }
        updates = state.updates + np.uint32(self.hp.actor_every_updates)
        networks = {"critics": valuing}
        state = state._replace(params=params, networks=networks, targets=lagging, optimizer=moments, updates=updates)
        return state, {**metrics, "actor_loss": loss, "actor_grad_norm": norm}

    def targets_of(self, state: State, rows: Transitions, noise: Any) -> Any:
        """Bellman targets from the lagging networks, (B,)."""
        hyper = state.hyper
        actions = self.actions(state.targets["actor"], rows.next_obs)
        actions = smoothed(actions, noise, hyper["target_noise"], hyper["target_noise_clip"])
        values = self.critics.apply(state.targets["critics"], rows.next_obs, actions).min(0)
        return td_targets(rows.rewards, rows.discounts, rows.terminated, values)

    def critic_loss(self, params: Params, rows: Transitions, targets: Any) -> tuple[Any, Metrics]:
        values = self.critics.apply(params, rows.obs, rows.actions)
        loss = critic_loss(values, targets)
        return loss, {"critic_loss": loss, "value_mean": values.mean()}

    def actor_loss(self, params: Params, valuing: Params, rows: Transitions, hyper: Hyper) -> Any:
        """Minus the first critic's value of the actor's actions."""
        return -self.critics.apply(valuing, rows.obs, self.actions(params, rows.obs))[0].mean()

    def functions(self) -> JaxAlgorithm:
        """The algorithm as a record of functions."""
        return self.algorithm(
            Noise("normal", (self.size,)),
            self.init,
            self.act,
            self.learn,
            exploration=lambda hyper, env_steps: hyper["exploration_noise"],
            unit_actions=True,
            updates_per_learn=self.hp.actor_every_updates,
        )._replace(head="deterministic")


def td3(ctx: BuildContext, hp: TD3Config) -> JaxAlgorithm:
    """Deterministic actor with an ensemble of critics, smoothed targets and a delayed actor."""
    return TwinDelayed(ctx, hp).functions()
