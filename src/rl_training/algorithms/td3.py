"""Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477).

Top to bottom: the target action as a pure function, the actor, the algorithm. Hyperparameters are in `hparams/td3.py`.
The critics are one batched network; actions are stored as -1..1, which is what the critics see.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.kernels.choice import Reference
from rl_training.algorithms.kernels.critics import CriticStep, fits
from rl_training.algorithms.kernels.td3 import TD3Kernel
from rl_training.algorithms.off_policy import (
    NetworkPolicy,
    OffPolicyAlgorithm,
    Transitions,
    critic_loss,
    host_forward,
    td_targets,
)
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig
from rl_training.hparams.td3 import SPEC, TD3Config
from rl_training.models.backbones.mlp import TensorObs, build_backbone, width
from rl_training.models.critics import QCritics
from rl_training.models.initialization import linear
from rl_training.numerics.encoding import to_bounds
from rl_training.numerics.initial_weights import POLICY_GAIN
from rl_training.types import ActResult, Array, Batch, BoxSpec, Carry, Metrics, Obs, SpaceSpec, UpdateResult

__all__ = ["SPEC", "TD3", "TD3Config", "smoothed"]


def smoothed(actions: Tensor, noise: Tensor, scale: float, clip: float) -> Tensor:
    """Target actions with noise that is cut to +-clip, then cut to the -1..1 of actions."""
    return (actions + (scale * noise).clamp(-clip, clip)).clamp(-1.0, 1.0)


class DeterministicActor(nn.Module):
    """One action in -1..1 per state."""

    def __init__(
        self, observation_space: SpaceSpec, action_space: BoxSpec, cfg: BackboneConfig, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.backbone = build_backbone(observation_space, cfg, rng)
        self.output = linear(rng, width(self.backbone), math.prod(action_space.shape), gain=POLICY_GAIN)

    def forward(self, obs: TensorObs) -> Tensor:
        return torch.tanh(self.output(self.backbone(obs)))  # (B, A)


class DeterministicPolicy(NetworkPolicy):
    """The actor's action, with Gaussian noise unless asked to be deterministic."""

    def __init__(self, actor: DeterministicActor, algorithm: OffPolicyAlgorithm, exploration_noise: float) -> None:
        super().__init__(actor, algorithm)
        self.exploration_noise = np.float32(exploration_noise)
        self.outputs = host_forward(actor.backbone, actor.output, algorithm.device)

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        actions = np.tanh(self.outputs(self.normalize(obs)))
        if not deterministic:
            noise = rng.standard_normal(actions.shape, dtype=np.float32)
            actions = np.minimum(np.maximum(actions + self.exploration_noise * noise, -1.0), 1.0)
        space = cast(BoxSpec, self.action_space)
        actions = actions.reshape(len(actions), *space.shape)
        return ActResult(actions, to_bounds(space, actions), carry)


class TD3(OffPolicyAlgorithm):
    """One update: critics; every second time the actor and the targets too."""

    hp: TD3Config

    def __init__(self, ctx: BuildContext, hp: TD3Config) -> None:
        super().__init__(ctx, hp)
        rng, space = ctx.streams("init"), cast(BoxSpec, ctx.action_space)
        self.actor = DeterministicActor(ctx.observation_space, space, ctx.network.actor, rng)
        self.critics = QCritics(ctx.observation_space, space, ctx.network.critic, rng, hp.num_critics)
        self.learner("actor", self.actor)
        self.learner("critics", self.critics)
        self.target("actor")
        self.target("critics")
        self.policy = DeterministicPolicy(self.actor, self, hp.exploration_noise)

    @cached_property
    def kernel(self) -> TD3Kernel | None:
        """The hand-written gradients, where they are those of this algorithm's losses; decided when first needed."""
        learnt = {name: learner.network for name, learner in self.learners.items()}
        targets = {name: target.network for name, target in self.targets.items()}
        same = learnt["actor"] is self.actor and learnt["critics"] is self.critics
        stock = type(self.actor) is type(targets["actor"]) is DeterministicActor
        meant = same and stock and REFERENCE.is_meant(self, [*learnt.values(), *targets.values()])
        if not (self.hp.kernel == "auto" and meant and fits(self.actor.backbone, self.actor.output, self.critics)):
            return None
        target_actor, target_critics = cast(DeterministicActor, targets["actor"]), cast(QCritics, targets["critics"])
        return TD3Kernel(self.actor, target_actor, self.critics, target_critics)

    def update(self, batch: Batch) -> UpdateResult:
        self.updates += 1
        rows, metrics = self.prepare(batch), cast(Metrics, {})
        errors = self.improve_critics(rows, metrics)
        if self.updates % self.hp.actor_every_updates == 0:
            self.improve_actor(rows, metrics)
            for target in self.targets.values():
                target.follow(self.hp.tau)
        return UpdateResult(metrics, None if rows.weights is None else errors.abs().mean(0).cpu().numpy())

    def improve_critics(self, rows: Transitions, metrics: Metrics) -> Tensor:
        """One step towards the targets; returns the errors (E, B)."""
        step = self.critics_gradient(rows)
        metrics["critic_loss"] = step.loss
        metrics["critic_grad_norm"] = self.apply("critics", step.loss, metrics)
        metrics["value_mean"] = step.value_mean
        return step.errors

    def critics_gradient(self, rows: Transitions) -> CriticStep:
        if self.kernel is not None:
            return self.kernel.critics_gradient(rows, self.with_noise)
        with torch.no_grad():
            targets = self.targets_of(rows)
        values = self.critics(rows.obs, rows.actions)
        loss = self.loss_of_critics(values, targets, rows.weights)
        self.learners["critics"].backward(loss)
        return CriticStep(loss.detach(), values.detach().mean(), (values - targets).detach())

    def targets_of(self, rows: Transitions) -> Tensor:
        """What the critics should have said of the actions taken, (B,)."""
        next_actions = self.with_noise(self.targets["actor"].network(rows.next_obs))
        next_values = self.targets["critics"].network(rows.next_obs, next_actions).amin(0)
        return td_targets(rows.rewards, rows.discounts, rows.terminated, next_values)

    def loss_of_critics(self, values: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """One number for the values (E, B) of E critics."""
        return critic_loss(values, targets, weights)

    def with_noise(self, actions: Tensor) -> Tensor:
        """The target's actions with their noise, if they have any."""
        if self.hp.target_noise == 0.0:
            return actions
        return smoothed(actions, self.noise(*actions.shape), self.hp.target_noise, self.hp.target_noise_clip)

    def improve_actor(self, rows: Transitions, metrics: Metrics) -> None:
        """One step towards what the first critic values."""
        loss = self.actor_gradient(rows)
        metrics["actor_loss"] = loss
        metrics["actor_grad_norm"] = self.apply("actor", loss, metrics)

    def actor_gradient(self, rows: Transitions) -> Tensor | float:
        if self.kernel is not None:
            return self.kernel.actor_gradient(rows)
        with self.learners["critics"].frozen():
            loss = self.loss_of_actor(rows)
        self.learners["actor"].backward(loss)
        return loss.detach()

    def loss_of_actor(self, rows: Transitions) -> Tensor:
        """Minus what the first critic thinks of the actor's actions; the critics are frozen meanwhile."""
        return cast(Tensor, -self.critics(rows.obs, self.actor(rows.obs))[0].mean())


REFERENCE = Reference(TD3, ["targets_of", "loss_of_critics", "loss_of_actor"], [td_targets, critic_loss])
