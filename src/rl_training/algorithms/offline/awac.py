"""Advantage-weighted actor-critic (Nair et al. 2020, arXiv:2006.09359).

The critics bootstrap from actions of the policy, as in SAC but without entropy; the actor imitates the dataset's
actions, weighted by how much better than an action of its own they are. Actor and policy are those of IQL: a Gaussian
whose spread does not depend on the state.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor

from rl_training.algorithms.off_policy import OffPolicyAlgorithm, Transitions, critic_loss, td_targets
from rl_training.algorithms.offline.iql import SpreadActor, SpreadPolicy, advantage_weights, imitation_loss
from rl_training.build_context import BuildContext
from rl_training.hparams.awac import SPEC, AWACConfig
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.models.critics import QCritics
from rl_training.types import Batch, BoxSpec, Metrics, UpdateResult

__all__ = ["AWAC", "SPEC", "AWACConfig"]


class AWAC(OffPolicyAlgorithm):
    """Critics of the policy's own actions, and an actor that imitates."""

    def __init__(self, ctx: BuildContext, hp: AWACConfig) -> None:
        super().__init__(ctx, cast(OffPolicyHparams, hp))
        self.options = hp
        rng, space = ctx.streams("init"), cast(BoxSpec, ctx.action_space)
        self.size = math.prod(space.shape)
        self.actor = SpreadActor(ctx.observation_space, space, ctx.network, rng)
        self.critics = QCritics(ctx.observation_space, space, ctx.network.critic, rng, hp.num_critics)
        self.learner("actor", self.actor)
        self.learner("critics", self.critics)
        self.target("critics")
        self.act_with(SpreadPolicy(self.actor, ctx, self.normalizer))

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the critics, then one of the actor with what they now say; the targets follow."""
        self.updates += 1
        rows, metrics, hp = self.prepare(batch), cast(Metrics, {}), self.options
        values = self.critics(rows.obs, rows.actions)
        loss = critic_loss(values, self.targets_of(rows))
        metrics["critic_loss"] = loss.detach()
        metrics["critic_grad_norm"] = self.step("critics", loss, metrics)
        metrics["value_mean"] = values.detach().mean()

        advantages = self.advantages_of(rows)
        loss = imitation_loss(self.actor, rows, advantage_weights(advantages, 1.0 / hp.temperature, hp.max_weight))
        metrics["actor_loss"] = loss.detach()
        metrics["actor_grad_norm"] = self.step("actor", loss, metrics)
        metrics["advantage_mean"] = advantages.mean()
        self.targets["critics"].follow(hp.tau)
        return UpdateResult(metrics)

    @torch.no_grad()
    def targets_of(self, rows: Transitions) -> Tensor:
        """Bellman targets of the actions taken, (B,); the next action is a sample of the policy."""
        next_actions = self.actor.sample(rows.next_obs, self.noise(len(rows.rewards), self.size))
        next_values = self.targets["critics"].network(rows.next_obs, next_actions).amin(0)
        return td_targets(rows.rewards, rows.discounts, rows.terminated, next_values)

    @torch.no_grad()
    def advantages_of(self, rows: Transitions) -> Tensor:
        """How much more the dataset's actions are worth than a sample of the policy, (B,)."""
        own = self.actor.sample(rows.obs, self.noise(len(rows.rewards), self.size))
        return cast(Tensor, self.critics(rows.obs, rows.actions).amin(0) - self.critics(rows.obs, own).amin(0))
