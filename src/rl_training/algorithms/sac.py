"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905), for continuous and for discrete actions.

Top to bottom: the losses as pure functions, actors and policies, how sampled and enumerated actions (Christodoulou
2019, arXiv:1910.07207) enter the losses, and the algorithm; `SAC.update` is all of it. Hyperparameters are in
`hparams/sac.py`.

What differs from common implementations: the critics are one batched network, and the actor's loss does not compute
gradients of their weights. Actions are stored as -1..1, which is what the critics see; the environment gets them
rescaled to its bounds. Images pass through one encoder, which the critics' loss trains and the actor sees without
gradient; networks with memory learn from sequences. Neither changes a line of the losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
from rl_training.hparams.sac import SPEC, SACConfig
from rl_training.models.backbones.build import build_actor_backbone, width
from rl_training.models.critics import QCritics
from rl_training.models.heads import MASKED_LOGIT, CategoricalHead, SquashedGaussianHead
from rl_training.models.observed import Seen, action_mask, features_of
from rl_training.models.shared_encoder import SharedEncoder, share_encoder
from rl_training.numerics.encoding import to_bounds
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.numerics.stable import LOG_STD_MAX, LOG_STD_MIN, raw_log_std
from rl_training.types import (
    ACTION_MASK,
    ActResult,
    Array,
    Batch,
    BoxSpec,
    Carry,
    DiscreteSpec,
    Metrics,
    Obs,
    SpaceSpec,
    UpdateResult,
)

__all__ = ["SAC", "SPEC", "SACConfig", "actor_loss", "allowed_share", "temperature_loss"]


def actor_loss(logprobs: Tensor, values: Tensor, alpha: Tensor | float) -> Tensor:
    """Mean of alpha log pi - Q, (B,) each: high value, and entropy as far as the temperature rewards it."""
    return (alpha * logprobs - values).mean()


def temperature_loss(log_alpha: Tensor, logprobs: Tensor, target_entropy: Tensor | float) -> Tensor:
    """Raises the temperature where the entropy -log pi is below its target, a scalar or (B,)."""
    return -(log_alpha * (logprobs + target_entropy)).mean()


def allowed_share(mask: Tensor) -> Tensor:
    """Largest entropy under masks (B, A), relative to that of all actions: log(allowed) / log(A), (B,).

    With 2 of 18 actions allowed it is 0.24; with a single one 0.
    """
    allowed = (mask != 0).sum(1).clamp(min=1).to(torch.float32)
    return allowed.log() / math.log(max(mask.shape[1], 2))


class GaussianActor(nn.Module):
    """A tanh-squashed Gaussian over actions in -1..1."""

    def __init__(
        self, observation_space: SpaceSpec, action_space: BoxSpec, network: NetworkConfig, rng: np.random.Generator
    ) -> None:
        super().__init__()
        ones = np.ones(action_space.shape, np.float32)
        self.backbone = build_actor_backbone(observation_space, network, rng)
        self.head = SquashedGaussianHead(width(self.backbone), BoxSpec(-ones, ones, ones.dtype), rng)
        with torch.no_grad():  # a first policy of mean 0 and standard deviation 1 before the tanh
            self.head.output.weight.mul_(0.01)
            self.head.output.bias[ones.size :] = raw_log_std(0.0)

    def sample(self, obs: Seen, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Differentiable actions (B, A) and their log-densities (B,)."""
        return self.head.rsample(self.head(features_of(self.backbone, obs)), noise)


class GaussianPolicy(NetworkPolicy):
    """Samples from a `GaussianActor`, or takes the tanh of its mean."""

    network: GaussianActor

    def __init__(
        self,
        actor: GaussianActor,
        ctx: BuildContext,
        normalizer: ObsNormalizer | None,
        encoder: SharedEncoder | None = None,
    ) -> None:
        super().__init__(actor, ctx, normalizer, encoder)
        self.backbone = actor.backbone
        self.outputs = host_forward(actor.backbone, actor.head.output, self.device, encoder)

    def graph(self) -> PolicyGraph | None:
        return self.graph_with("gaussian")

    def torch_parts(self) -> TorchParts:
        return TorchParts(self.network.backbone, self.network.head.output, squash=True)

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        outputs, carry = self.outputs(self.normalize(obs), carry, is_first)
        mean, raw = np.split(outputs, 2, axis=1)
        if not deterministic:
            log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (np.tanh(raw) + 1.0)
            mean = mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)
        space = cast(BoxSpec, self.action_space)
        actions = np.tanh(mean).reshape(len(mean), *space.shape)
        return ActResult(actions, to_bounds(space, actions), carry)


class CategoricalActor(nn.Module):
    """A categorical distribution over n actions."""

    def __init__(
        self, observation_space: SpaceSpec, action_space: DiscreteSpec, network: NetworkConfig, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.backbone = build_actor_backbone(observation_space, network, rng)
        self.head = CategoricalHead(width(self.backbone), action_space, rng)

    def forward(self, obs: Seen) -> Tensor:
        """Log-probabilities (B, A); actions that a mask forbids have probability 0."""
        logits, mask = self.head(features_of(self.backbone, obs)).mean, action_mask(obs)
        if mask is not None:
            logits = logits.masked_fill(mask == 0, MASKED_LOGIT)
        return F.log_softmax(logits, dim=1)


class CategoricalPolicy(NetworkPolicy):
    """Draws from a `CategoricalActor`, or takes its most likely action."""

    network: CategoricalActor

    def __init__(
        self,
        actor: CategoricalActor,
        ctx: BuildContext,
        normalizer: ObsNormalizer | None,
        encoder: SharedEncoder | None = None,
    ) -> None:
        super().__init__(actor, ctx, normalizer, encoder)
        self.head, self.backbone = actor.head, actor.backbone
        self.outputs = host_forward(actor.backbone, actor.head.output, self.device, encoder)

    def graph(self) -> PolicyGraph | None:
        return self.graph_with("categorical")

    def torch_parts(self) -> TorchParts:
        return TorchParts(self.network.backbone, self.network.head.output)

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        logits, carry = self.outputs(self.normalize(obs), carry, is_first)
        actions = self.head.sample(logits, rng, deterministic=deterministic, mask=mask)
        return ActResult(actions, actions, carry)


class Temperature(nn.Module):
    """The weight of the entropy, learnt as its logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(1))


# -- how actions enter the losses -------------------------------------------------------------------------------------


def sampled_soft_values(
    actor: GaussianActor, critics: nn.Module, obs: Seen, alpha: Tensor | float, noise: Tensor
) -> Tensor:
    """min Q(obs, a) - alpha log pi(a) of an action sampled from the policy, (B,)."""
    actions, logprobs = actor.sample(obs, noise)
    return cast(Tensor, critics(obs, actions).amin(0) - alpha * logprobs)


def sampled_values_taken(critics: nn.Module, rows: Transitions) -> Tensor:
    """Values of the actions in the batch, (E, B)."""
    return cast(Tensor, critics(rows.obs, rows.actions))


def sampled_logprobs_and_values(
    actor: GaussianActor, critics: nn.Module, obs: Seen, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """log pi(a) and min Q(obs, a) of a differentiable sample of the policy, (B,) each."""
    actions, logprobs = actor.sample(obs, noise)
    return logprobs, critics(obs, actions).amin(0)


def enumerated_soft_values(
    actor: CategoricalActor, critics: nn.Module, obs: Seen, alpha: Tensor | float, noise: Tensor
) -> Tensor:
    """Expectation of min Q - alpha log pi over all actions, (B,); nothing is sampled, so `noise` has no columns."""
    logprobs = actor(obs)
    values = critics(obs).amin(0) - alpha * logprobs
    return cast(Tensor, (logprobs.exp() * values).sum(1))


def enumerated_values_taken(critics: nn.Module, rows: Transitions) -> Tensor:
    """Values of the actions in the batch, (E, B)."""
    values = critics(rows.obs)  # (E, B, A)
    index = rows.actions.long().view(1, -1, 1).expand(len(values), -1, 1)
    return cast(Tensor, values.gather(2, index).squeeze(2))


def enumerated_logprobs_and_values(
    actor: CategoricalActor, critics: nn.Module, obs: Seen, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Expectations of log pi and of min Q over all actions, (B,) each."""
    logprobs, values = actor(obs), critics(obs).amin(0)
    return (logprobs.exp() * logprobs).sum(1), (logprobs.exp() * values).sum(1)


class ActionTerms(NamedTuple):
    """How actions enter the losses, as three functions."""

    soft_values: Callable[..., Tensor]
    """(actor, target critics, next obs, alpha, noise) -> soft values of the next states, (B,)."""
    values_taken: Callable[..., Tensor]
    """(critics, rows) -> values of the actions taken, (E, B)."""
    logprobs_and_values: Callable[..., tuple[Tensor, Tensor]]
    """(actor, critics, obs, noise) -> log-probabilities and values of the policy's own actions, (B,) each."""


SAMPLED_ACTIONS = ActionTerms(sampled_soft_values, sampled_values_taken, sampled_logprobs_and_values)
"""Box actions: samples of the policy."""
ENUMERATED_ACTIONS = ActionTerms(enumerated_soft_values, enumerated_values_taken, enumerated_logprobs_and_values)
"""Discrete actions: expectations over all of them."""


# -- learning ---------------------------------------------------------------------------------------------------------


class ActorStep(NamedTuple):
    """Loss of the actor on one batch, and the log-probabilities (B,) of its actions."""

    loss: Tensor | float
    logprobs: Tensor
    allowed: Tensor | None = None
    """`allowed_share` of the actions of each row (B,), where they are masked."""


class SAC(OffPolicyAlgorithm):
    """Maximum-entropy actor-critic with an ensemble of critics and, unless `alpha` is given, a learnt temperature."""

    hp: SACConfig

    def __init__(self, ctx: BuildContext, hp: SACConfig) -> None:
        super().__init__(ctx, hp)
        rng, space = ctx.streams("init"), ctx.action_space
        encoder, obs_space, network = share_encoder(ctx.observation_space, ctx.network, rng)
        self.actor: GaussianActor | CategoricalActor
        self.policy: NetworkPolicy
        if isinstance(space, BoxSpec):
            self.actor, self.actions = GaussianActor(obs_space, space, network, rng), SAMPLED_ACTIONS
            self.noise_size = math.prod(space.shape)
            usual_entropy = -float(self.noise_size)
        else:
            assert isinstance(space, DiscreteSpec), "other action spaces are refused before anything is built"
            self.actor, self.actions = CategoricalActor(obs_space, space, network, rng), ENUMERATED_ACTIONS
            self.noise_size = 0
            usual_entropy = 0.89 * math.log(space.n)
        self.critics = QCritics(obs_space, space, network.critic, rng, hp.num_critics, encoder)
        self.learner("actor", self.actor)
        self.learner("critics", self.critics)
        self.target("critics")
        if isinstance(self.actor, GaussianActor):
            self.act_with(GaussianPolicy(self.actor, ctx, self.normalizer, encoder))
        else:
            self.act_with(CategoricalPolicy(self.actor, ctx, self.normalizer, encoder))
        self.target_entropy = usual_entropy if hp.target_entropy is None else hp.target_entropy
        self.temperature = None if hp.alpha is not None else Temperature()
        if self.temperature is not None:
            self.learner("temperature", self.temperature)

    @cached_property
    def kernel(self) -> Kernel:
        """Chosen once, at the first update: a subclass may replace parts until its own constructor has run."""
        from rl_training.algorithms.kernels.sac import FastKernel, fits

        parts = (self.actor, self.critics, self.targets["critics"].network)
        if self.ctx.shards is None and allows_fast(self.hp) and READABLE.is_unchanged(self, parts) and fits(self):
            return FastKernel(self)
        return self.reference_kernel()

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the critics, the actor and the temperature, then the target critics follow."""
        self.updates += 1
        rows, alpha, metrics = self.learnable(batch), self.alpha(), cast(Metrics, {})

        critics = self.critics_gradient(rows, alpha)
        metrics["critic_loss"] = critics.loss
        metrics["critic_grad_norm"] = self.apply("critics", critics.loss, metrics)
        metrics["value_mean"] = critics.value_mean

        actor = self.actor_gradient(rows, alpha)
        metrics["actor_loss"] = actor.loss
        metrics["entropy"] = -actor.logprobs.mean()
        metrics["actor_grad_norm"] = self.apply("actor", actor.loss, metrics)

        metrics["alpha"] = alpha
        if self.temperature is not None:
            share, target_entropy = actor.allowed, self.target_entropy
            wanted = target_entropy if share is None else target_entropy * share
            loss = temperature_loss(self.temperature.log_alpha, actor.logprobs, wanted)
            metrics["temperature_loss"] = loss.detach()
            self.step("temperature", loss, metrics)

        self.targets["critics"].follow(self.hp.tau)
        return UpdateResult(metrics, self.priorities(rows, critics.errors.abs().mean(0)))

    def alpha(self) -> Tensor | float:
        """Current temperature."""
        if self.temperature is not None:
            return self.temperature.log_alpha.detach().exp()
        assert self.hp.alpha is not None
        return self.hp.alpha

    def critics_gradient(self, rows: Learnable, alpha: Tensor | float) -> CriticStep:
        """Gradient of `critics_objective`, ready for the critics' optimiser."""
        return self.kernel.gradient("critics", self.critics_objective, rows, alpha)

    def critics_objective(self, rows: Transitions, alpha: Tensor | float) -> CriticStep:
        """Squared errors of the critics towards the soft Bellman targets."""
        with torch.no_grad():
            targets = self.targets_of(rows, alpha)
        values = self.actions.values_taken(self.critics, rows)
        loss = self.loss_of_critics(values, targets, rows.weights)
        return CriticStep(loss, values.detach().mean(), (values - targets).detach())

    def targets_of(self, rows: Transitions, alpha: Tensor | float) -> Tensor:
        """Soft Bellman targets of the actions taken, (B,)."""
        target_critics, noise = self.targets["critics"].network, self.action_noise(rows)
        next_obs = self.critics.shown(rows.next_obs)
        soft_values = self.actions.soft_values(self.actor, target_critics, next_obs, alpha, noise)
        return td_targets(rows.rewards, rows.discounts, rows.terminated, soft_values)

    def loss_of_critics(self, values: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Loss of the values (E, B) of E critics, a scalar."""
        return critic_loss(values, targets, weights)

    def actor_gradient(self, rows: Learnable, alpha: Tensor | float) -> ActorStep:
        """Gradient of `actor_objective`, ready for the actor's optimiser."""
        return self.kernel.gradient("actor", self.actor_objective, rows, alpha)

    def actor_objective(self, rows: Transitions, alpha: Tensor | float) -> ActorStep:
        """Entropy-regularised value of the policy's own actions; gradients reach the actor only."""
        with self.learners["critics"].frozen():
            obs, noise = self.critics.shown(rows.obs), self.action_noise(rows)
            logprobs, values = self.actions.logprobs_and_values(self.actor, self.critics, obs, noise)
        mask = action_mask(rows.obs)
        share = None if mask is None else allowed_share(mask)
        return ActorStep(self.loss_of_actor(logprobs, values, alpha), logprobs.detach(), share)

    def loss_of_actor(self, logprobs: Tensor, values: Tensor, alpha: Tensor | float) -> Tensor:
        """Loss of log-probabilities and values of the policy's own actions, (B,) each; a scalar."""
        return actor_loss(logprobs, values, alpha)

    def action_noise(self, rows: Transitions) -> Tensor:
        """Noise (B, A) that the actor samples with; (B, 0) where actions are enumerated."""
        return self.noise(len(rows.rewards), self.noise_size)


READABLE = Readable(
    SAC,
    [
        *("critics_objective", "targets_of", "loss_of_critics"),
        *("actor_objective", "loss_of_actor", "action_noise", "noise"),
    ],
    [td_targets, critic_loss, actor_loss],
)
