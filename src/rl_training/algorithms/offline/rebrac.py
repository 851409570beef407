"""ReBRAC (Tarasov et al. 2023, arXiv:2305.09836): TD3 whose actor and targets are held near the dataset.

Two lines differ from TD3: the actor's loss, and a penalty inside the targets for next actions that are far from those
of the dataset. Distances are sums over the dimensions of actions, where TD3+BC takes means. At the last step of an
episode no next action is known: the step is kept, and its target has no penalty.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor

from rl_training.algorithms.off_policy import Transitions, td_targets
from rl_training.algorithms.offline.common import refuse_memory
from rl_training.algorithms.td3 import TD3
from rl_training.build_context import BuildContext
from rl_training.hparams.rebrac import SPEC, ReBRACConfig
from rl_training.hparams.td3 import TD3Config
from rl_training.models.critics import QCritics

__all__ = ["SPEC", "ReBRAC", "ReBRACConfig", "distances", "rebrac_loss"]


def distances(actions: Tensor, data: Tensor) -> Tensor:
    """Squared distances (B,) of actions (B, A) from those of the dataset, summed over dimensions."""
    return (actions - data.reshape(actions.shape)).square().sum(1)


def rebrac_loss(values: Tensor, actions: Tensor, data: Tensor, beta: float) -> Tensor:
    """mean [beta |action - data|^2 - Q / mean|Q|], for values (B,) of the actor's actions (B, A)."""
    scale = 1.0 / values.detach().abs().mean().clamp(min=1e-8)
    return (beta * distances(actions, data) - scale * values).mean()


class ReBRAC(TD3):
    """TD3 with another loss of the actor, and other targets."""

    def __init__(self, ctx: BuildContext, hp: ReBRACConfig) -> None:
        super().__init__(ctx, cast(TD3Config, hp))
        refuse_memory(self, "rebrac")
        self.options = hp

    def targets_of(self, rows: Transitions) -> Tensor:
        """Bellman targets of the actions taken, (B,), lower where the next action is far from that of the dataset."""
        target_actor, target_critics = (self.targets[name].network for name in ("actor", "critics"))
        next_obs = cast(QCritics, target_critics).shown(rows.next_obs)
        actions = self.with_noise(target_actor(next_obs))
        values = target_critics(next_obs, actions).amin(0)
        if rows.next_actions is not None and rows.next_known is not None:
            penalty = rows.next_known * distances(actions, rows.next_actions)
            values = values - self.options.critic_beta * penalty
        return td_targets(rows.rewards, rows.discounts, rows.terminated, values)

    def loss_of_actor(self, rows: Transitions) -> Tensor:
        """High value and nearness to the dataset; called while the critics are frozen."""
        obs = self.critics.shown(rows.obs)
        actions = self.actor(obs)
        return rebrac_loss(self.critics(obs, actions).amin(0), actions, rows.actions, self.options.actor_beta)
