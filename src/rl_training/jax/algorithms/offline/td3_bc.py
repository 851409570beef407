"""TD3+BC (Fujimoto and Gu 2021, arXiv:2106.06860) for JAX: the twin of `rl_training/algorithms/offline/td3_bc.py`."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp

from rl_training.build_context import BuildContext
from rl_training.hparams.td3 import TD3Config
from rl_training.hparams.td3_bc import SPEC, TD3BCConfig
from rl_training.jax.algorithms.off_policy import Transitions
from rl_training.jax.algorithms.offline.bc import cloning_loss
from rl_training.jax.algorithms.td3 import HYPER as TD3_HYPER
from rl_training.jax.algorithms.td3 import TwinDelayed
from rl_training.jax.models.networks import Params
from rl_training.jax.types import Hyper, JaxAlgorithm

__all__ = ["HYPER", "SPEC", "TD3BCConfig", "td3_bc", "td3_bc_loss"]

HYPER = (*TD3_HYPER, "alpha")


def td3_bc_loss(values: Any, actions: Any, data: Any, alpha: Any) -> Any:
    """-alpha mean(Q) / mean|Q| + mean (action - data)^2, for values (B,) of the actor's actions (B, A)."""
    scale = alpha / jnp.maximum(jax.lax.stop_gradient(jnp.abs(values).mean()), 1e-8)
    return -scale * values.mean() + cloning_loss(actions, data)


class Imitating(TwinDelayed):
    """TD3 with another loss of the actor."""

    def actor_loss(self, params: Params, valuing: Params, rows: Transitions, hyper: Hyper) -> Any:
        """High value and nearness to the dataset."""
        actions = self.actions(params, rows.obs)
        values = self.critics.apply(valuing, rows.obs, actions)[0]
        return td3_bc_loss(values, actions, rows.actions, hyper["alpha"])


def td3_bc(ctx: BuildContext, hp: TD3BCConfig) -> JaxAlgorithm:
    """TD3 whose actor also imitates the dataset."""
    return Imitating(ctx, cast(TD3Config, hp)).functions()
