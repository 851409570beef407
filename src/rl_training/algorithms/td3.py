"""Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477).

Top to bottom: the target action as a pure function, the actor, the algorithm; `TD3.update` is all of it.
Hyperparameters are in `hparams/td3.py`.

The critics are one batched network; actions are stored as -1..1, which is what the critics see. Images pass through one
encoder, which the critics' loss trains and the actor sees without gradient; networks with memory learn from sequences.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.kernel_choice import Kernel, Readable, allows_fast
from rl_training.algorithms.off_policy import (
    CriticStep,
    Learnable,
    OffPolicyAlgorithm,
    Transitions,
    critic_loss,
    td_targets,
)
from rl_training.algorithms.policies import NetworkPolicy, TorchParts, host_forward
from rl_training.build_context import BuildContext
from rl_training.config.schema import NetworkConfig
from rl_training.export.graph import PolicyGraph
from rl_training.hparams.td3 import SPEC, TD3Config
from rl_training.models.backbones.build import build_actor_backbone, width
from rl_training.models.critics import QCritics
from rl_training.models.initialization import linear
from rl_training.models.observed import Seen, features_of
from rl_training.models.shared_encoder import SharedEncoder, share_encoder
from rl_training.numerics.encoding import to_bounds
from rl_training.numerics.initial_weights import POLICY_GAIN
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.types import ActResult, Array, Batch, BoxSpec, Carry, Metrics, Obs, SpaceSpec, UpdateResult

__all__ = ["SPEC", "TD3", "TD3Config", "smoothed"]


def smoothed(actions: Tensor, noise: Tensor, scale: float, clip: float) -> Tensor:
    """Target actions plus noise clipped to +-clip, the sum clipped to the -1..1 of actions."""
    return (actions + (scale * noise).clamp(-clip, clip)).clamp(-1.0, 1.0)


class DeterministicActor(nn.Module):
    """One action in -1..1 per state."""

    def __init__(
        self, observation_space: SpaceSpec, action_space: BoxSpec, network: NetworkConfig, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.backbone = build_actor_backbone(observation_space, network, rng)
        self.output = linear(rng, width(self.backbone), math.prod(action_space.shape), gain=POLICY_GAIN)

    def forward(self, obs: Seen) -> Tensor:
        return torch.tanh(self.output(features_of(self.backbone, obs)))  # (B, A)


class DeterministicPolicy(NetworkPolicy):
    """The actor's action, plus Gaussian noise unless `deterministic`."""

    network: DeterministicActor

    def __init__(
        self,
        actor: DeterministicActor,
        ctx: BuildContext,
        normalizer: ObsNormalizer | None,
        exploration_noise: float,
        encoder: SharedEncoder | None = None,
    ) -> None:
        super().__init__(actor, ctx, normalizer, encoder)
        self.backbone = actor.backbone
        self.exploration_noise = np.float32(exploration_noise)
        self.outputs = host_forward(actor.backbone, actor.output, self.device, encoder)

    def graph(self) -> PolicyGraph | None:
        return self.graph_with("deterministic")

    def torch_parts(self) -> TorchParts:
        return TorchParts(self.network.backbone, self.network.output, squash=True)

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        outputs, carry = self.outputs(self.normalize(obs), carry, is_first)
        actions = np.tanh(outputs)
        if not deterministic:
            noise = rng.standard_normal(actions.shape, dtype=np.float32)
            actions = np.minimum(np.maximum(actions + self.exploration_noise * noise, -1.0), 1.0)
        space = cast(BoxSpec, self.action_space)
        actions = actions.reshape(len(actions), *space.shape)
        return ActResult(actions, to_bounds(space, actions), carry)


class ActorStep(NamedTuple):
    """Loss of the actor on one batch."""

    loss: Tensor | float


class TD3(OffPolicyAlgorithm):
    """Deterministic actor with an ensemble of critics, smoothed target actions and a delayed actor."""

    hp: TD3Config

    def __init__(self, ctx: BuildContext, hp: TD3Config) -> None:
        super().__init__(ctx, hp)
        rng, space = ctx.streams("init"), cast(BoxSpec, ctx.action_space)
        encoder, obs_space, network = share_encoder(ctx.observation_space, ctx.network, rng)
        self.actor = DeterministicActor(obs_space, space, network, rng)
        self.critics = QCritics(obs_space, space, network.critic, rng, hp.num_critics, encoder)
        self.learner("actor", self.actor)
        self.learner("critics", self.critics)
        self.target("actor")
        self.target("critics")
        self.act_with(DeterministicPolicy(self.actor, ctx, self.normalizer, hp.exploration_noise, encoder))

    @cached_property
    def kernel(self) -> Kernel:
        """Chosen once, at the first update: a subclass may replace parts until its own constructor has run."""
        from rl_training.algorithms.kernels.td3 import FastKernel, fits

        parts = (self.actor, self.critics, *(target.network for target in self.targets.values()))
        if self.ctx.shards is None and allows_fast(self.hp) and READABLE.is_unchanged(self, parts) and fits(self):
            return FastKernel(self)
        return self.reference_kernel()

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the critics; at every `actor_every_updates`-th call the actor and the targets move too."""
        self.updates += 1
        rows, metrics = self.learnable(batch), cast(Metrics, {})

        critics = self.critics_gradient(rows)
        metrics["critic_loss"] = critics.loss
        metrics["critic_grad_norm"] = self.apply("critics", critics.loss, metrics)
        metrics["value_mean"] = critics.value_mean

        if self.updates % self.hp.actor_every_updates == 0:
            metrics["actor_loss"] = loss = self.actor_gradient(rows)
            metrics["actor_grad_norm"] = self.apply("actor", loss, metrics)
            for target in self.targets.values():
                target.follow(self.hp.tau)

        return UpdateResult(metrics, self.priorities(rows, critics.errors.abs().mean(0)))

    def critics_gradient(self, rows: Learnable) -> CriticStep:
        """Gradient of `critics_objective`, ready for the critics' optimiser."""
        return self.kernel.gradient("critics", self.critics_objective, rows)

    def critics_objective(self, rows: Transitions) -> CriticStep:
        """Squared errors of the critics towards the Bellman targets."""
        with torch.no_grad():
            targets = self.targets_of(rows)
        values = self.critics(rows.obs, rows.actions)
        loss = self.loss_of_critics(values, targets, rows.weights)
        return CriticStep(loss, values.detach().mean(), (values - targets).detach())

    def targets_of(self, rows: Transitions) -> Tensor:
        """Bellman targets of the actions taken, (B,)."""
        target_actor, target_critics = (self.targets[name].network for name in ("actor", "critics"))
        next_obs = cast(QCritics, target_critics).shown(rows.next_obs)
        next_values = target_critics(next_obs, self.with_noise(target_actor(next_obs))).amin(0)
        return td_targets(rows.rewards, rows.discounts, rows.terminated, next_values)

    def with_noise(self, actions: Tensor) -> Tensor:
        """The target actor's actions, smoothed unless `target_noise` is 0."""
        if self.hp.target_noise == 0.0:
            return actions
        return smoothed(actions, self.noise(*actions.shape), self.hp.target_noise, self.hp.target_noise_clip)

    def loss_of_critics(self, values: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Loss of the values (E, B) of E critics, a scalar."""
        return critic_loss(values, targets, weights)

    def actor_gradient(self, rows: Learnable) -> Tensor | float:
        """Gradient of `actor_objective`, ready for the actor's optimiser; returns its loss."""
        return self.kernel.gradient("actor", self.actor_objective, rows).loss

    def actor_objective(self, rows: Transitions) -> ActorStep:
        """Value of the actor's actions; gradients reach the actor only."""
        with self.learners["critics"].frozen():
            return ActorStep(self.loss_of_actor(rows))

    def loss_of_actor(self, rows: Transitions) -> Tensor:
        """Minus the first critic's value of the actor's actions; called while the critics are frozen."""
        obs = self.critics.shown(rows.obs)
        return cast(Tensor, -self.critics(obs, self.actor(obs))[0].mean())


READABLE = Readable(
    TD3,
    [
        *("critics_objective", "targets_of", "with_noise", "noise", "loss_of_critics"),
        *("actor_objective", "loss_of_actor"),
    ],
    [td_targets, critic_loss, smoothed],
)
