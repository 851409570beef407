"""ReBRAC (Tarasov et al. 2023, arXiv:2305.09836) for JAX: the twin of `rl_training/algorithms/offline/rebrac.py`."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp

from rl_training.build_context import BuildContext
from rl_training.hparams.rebrac import SPEC, ReBRACConfig
from rl_training.hparams.td3 import TD3Config
from rl_training.jax.algorithms.off_policy import State, Transitions, td_targets
from rl_training.jax.algorithms.td3 import HYPER as TD3_HYPER
from rl_training.jax.algorithms.td3 import TwinDelayed, smoothed
from rl_training.jax.models.networks import Params
from rl_training.jax.types import Hyper, JaxAlgorithm

__all__ = ["HYPER", "SPEC", "ReBRACConfig", "distances", "rebrac", "rebrac_loss"]

HYPER = (*TD3_HYPER, "actor_beta", "critic_beta")


def distances(actions: Any, data: Any) -> Any:
    """Squared distances (B,) of actions (B, A) from those of the dataset, summed over dimensions."""
    return jnp.square(actions - data.reshape(actions.shape)).sum(1)


def rebrac_loss(values: Any, actions: Any, data: Any, beta: Any) -> Any:
    """mean [beta |action - data|^2 - Q / mean|Q|], for values (B,) of the actor's actions (B, A)."""
    scale = 1.0 / jnp.maximum(jax.lax.stop_gradient(jnp.abs(values).mean()), 1e-8)
    return (beta * distances(actions, data) - scale * values).mean()


class DoublyHeld(TwinDelayed):
    """TD3 with another loss of the actor, and other targets."""

    def targets_of(self, state: State, rows: Transitions, noise: Any) -> Any:
        """Bellman targets (B,), lower where the next action is far from that of the dataset."""
        hyper = state.hyper
        actions = self.actions(state.targets["actor"], rows.next_obs)
        actions = smoothed(actions, noise, hyper["target_noise"], hyper["target_noise_clip"])
        values = self.critics.apply(state.targets["critics"], rows.next_obs, actions).min(0)
        if rows.next_actions is not None:
            values = values - hyper["critic_beta"] * rows.next_known * distances(actions, rows.next_actions)
        return td_targets(rows.rewards, rows.discounts, rows.terminated, values)

    def actor_loss(self, params: Params, valuing: Params, rows: Transitions, hyper: Hyper) -> Any:
        """High value and nearness to the dataset."""
        actions = self.actions(params, rows.obs)
        values = self.critics.apply(valuing, rows.obs, actions).min(0)
        return rebrac_loss(values, actions, rows.actions, hyper["actor_beta"])


def rebrac(ctx: BuildContext, hp: ReBRACConfig) -> JaxAlgorithm:
    """TD3 whose actor and targets are held near the dataset."""
    return DoublyHeld(ctx, cast(TD3Config, hp)).functions()
