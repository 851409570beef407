"""TD3+BC (Fujimoto and Gu 2021, arXiv:2106.06860): TD3 whose actor stays near the dataset.

One line differs from TD3: the actor's loss. The values are divided by their mean magnitude, as the authors' code does
it: of the actor's own actions in the same batch, without a gradient.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor

from rl_training.algorithms.off_policy import Transitions
from rl_training.algorithms.offline.bc import cloning_loss
from rl_training.algorithms.td3 import TD3
from rl_training.build_context import BuildContext
from rl_training.hparams.td3 import TD3Config
from rl_training.hparams.td3_bc import SPEC, TD3BCConfig

__all__ = ["SPEC", "TD3BC", "TD3BCConfig", "td3_bc_loss"]


def td3_bc_loss(values: Tensor, actions: Tensor, data: Tensor, alpha: float) -> Tensor:
    """-alpha mean(Q) / mean|Q| + mean (action - data)^2, for values (B,) of the actor's actions (B, A)."""
    scale = alpha / values.detach().abs().mean().clamp(min=1e-8)
    return -scale * values.mean() + cloning_loss(actions, data)


class TD3BC(TD3):
    """TD3 with another loss of the actor."""

    def __init__(self, ctx: BuildContext, hp: TD3BCConfig) -> None:
        super().__init__(ctx, cast(TD3Config, hp))
        self.alpha = hp.alpha

    def loss_of_actor(self, rows: Transitions) -> Tensor:
        """High value and nearness to the dataset; called while the critics are frozen."""
        obs = self.critics.shown(rows.obs)
        actions = self.actor(obs)
        return td3_bc_loss(self.critics(obs, actions)[0], actions, rows.actions, self.alpha)
