"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905), for continuous and for discrete actions.

Top to bottom: the losses as pure functions, actors and policies, the algorithm; then how sampled and counted actions
(Christodoulou 2019, arXiv:1910.07207) enter its losses. Hyperparameters are in `hparams/sac.py`.

What differs from common implementations: the critics are one batched network, and the actor's loss does not compute
gradients of their weights. Actions are stored as -1..1, which is what the critics see; the environment gets them
rescaled to its bounds.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms.kernels.choice import Reference
from rl_training.algorithms.kernels.critics import CriticStep, fits
from rl_training.algorithms.kernels.sac import SACKernel
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
from rl_training.hparams.sac import SPEC, SACConfig
from rl_training.models.backbones.mlp import TensorObs, build_backbone, width
from rl_training.models.critics import QCritics
from rl_training.models.heads import MASKED_LOGIT, CategoricalHead, SquashedGaussianHead
from rl_training.models.networks import action_mask
from rl_training.numerics.encoding import to_bounds
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
    """Actions of high value, and as random as the temperature pays for: mean of alpha log pi - Q, (B,) each."""
    return (alpha * logprobs - values).mean()


def temperature_loss(log_alpha: Tensor, logprobs: Tensor, target_entropy: Tensor | float) -> Tensor:
    """Raises the temperature where the entropy -log pi is below its target, one for all states or (B,)."""
    return -(log_alpha * (logprobs + target_entropy)).mean()


def allowed_share(mask: Tensor) -> Tensor:
    """The largest entropy that masks (B, A) leave, as a share of that without one: log(allowed) / log(A), (B,).

    2 of 18 allowed actions leave 0.24; a single one leaves nothing to be random about, 0.
    """
    allowed = (mask != 0).sum(1).clamp(min=1).to(torch.float32)
    return allowed.log() / math.log(max(mask.shape[1], 2))


class GaussianActor(nn.Module):
    """A tanh-squashed Gaussian over actions in -1..1."""

    def __init__(
        self, observation_space: SpaceSpec, action_space: BoxSpec, cfg: BackboneConfig, rng: np.random.Generator
    ) -> None:
        super().__init__()
        ones = np.ones(action_space.shape, np.float32)
        self.backbone = build_backbone(observation_space, cfg, rng)
        self.head = SquashedGaussianHead(width(self.backbone), BoxSpec(-ones, ones, ones.dtype), rng)
        with torch.no_grad():  # a first policy of mean 0 and standard deviation 1 before the tanh
            self.head.output.weight.mul_(0.01)
            self.head.output.bias[ones.size :] = raw_log_std(0.0)

    def sample(self, obs: TensorObs, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Differentiable actions (B, A) and their log-densities (B,)."""
        return self.head.rsample(self.head(self.backbone(obs)), noise)


class GaussianPolicy(NetworkPolicy):
    """Acts with a `GaussianActor`."""

    def __init__(self, actor: GaussianActor, algorithm: OffPolicyAlgorithm) -> None:
        super().__init__(actor, algorithm)
        self.outputs = host_forward(actor.backbone, actor.head.output, algorithm.device)

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        mean, raw = np.split(self.outputs(self.normalize(obs)), 2, axis=1)
        if not deterministic:
            log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (np.tanh(raw) + 1.0)
            mean = mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)
        space = cast(BoxSpec, self.action_space)
        actions = np.tanh(mean).reshape(len(mean), *space.shape)
        return ActResult(actions, to_bounds(space, actions), carry)


class CategoricalActor(nn.Module):
    """Log-probabilities of n actions."""

    def __init__(
        self, observation_space: SpaceSpec, action_space: DiscreteSpec, cfg: BackboneConfig, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.backbone = build_backbone(observation_space, cfg, rng)
        self.head = CategoricalHead(width(self.backbone), action_space, rng)

    def forward(self, obs: TensorObs) -> Tensor:
        """(B, A); what a mask forbids has probability 0."""
        logits, mask = self.head(self.backbone(obs)).mean, action_mask(obs)
        if mask is not None:
            logits = logits.masked_fill(mask == 0, MASKED_LOGIT)
        return F.log_softmax(logits, dim=1)


class CategoricalPolicy(NetworkPolicy):
    """Draws from a `CategoricalActor`, or takes its most likely action."""

    def __init__(self, actor: CategoricalActor, algorithm: OffPolicyAlgorithm) -> None:
        super().__init__(actor, algorithm)
        self.head = actor.head
        self.outputs = host_forward(actor.backbone, actor.head.output, algorithm.device)

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        logits = self.outputs(self.normalize(obs))
        actions = self.head.sample(logits, rng, deterministic=deterministic, mask=mask)
        return ActResult(actions, actions, carry)


class Temperature(nn.Module):
    """The weight of the entropy, learnt as its logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(1))


class SAC(OffPolicyAlgorithm):
    """One update: critics, actor, temperature, targets. How actions enter the losses is a matter of `self.actions`."""

    hp: SACConfig

    def __init__(self, ctx: BuildContext, hp: SACConfig) -> None:
        super().__init__(ctx, hp)
        rng, space, obs_space = ctx.streams("init"), ctx.action_space, ctx.observation_space
        assert isinstance(space, BoxSpec | DiscreteSpec), "refused otherwise"
        actor: GaussianActor | CategoricalActor
        if isinstance(space, BoxSpec):
            actor = GaussianActor(obs_space, space, ctx.network.actor, rng)
            usual_entropy = -float(math.prod(space.shape))
        else:
            actor = CategoricalActor(obs_space, space, ctx.network.actor, rng)
            usual_entropy = 0.89 * math.log(space.n)
        self.critics = QCritics(obs_space, space, ctx.network.critic, rng, hp.num_critics)
        self.learner("actor", actor)
        self.learner("critics", self.critics)
        self.target("critics")
        if isinstance(actor, GaussianActor):
            self.actions: SampledActions | CountedActions = SampledActions(actor, self)
            self.policy: NetworkPolicy = GaussianPolicy(actor, self)
        else:
            self.actions, self.policy = CountedActions(actor, self), CategoricalPolicy(actor, self)
        self.target_entropy = usual_entropy if hp.target_entropy is None else hp.target_entropy
        self.temperature = None if hp.alpha is not None else Temperature()
        if self.temperature is not None:
            self.learner("temperature", self.temperature)

    @cached_property
    def kernel(self) -> SACKernel | None:
        """The hand-written gradients, where they are those of this algorithm's losses; decided when first needed."""
        actor, critics = self.learners["actor"].network, self.learners["critics"].network
        target = cast(QCritics, self.targets["critics"].network)
        if self.hp.kernel != "auto" or type(actor) is not GaussianActor or critics is not self.critics:
            return None
        own = type(self.actions) is SampledActions and self.actions.actor is actor
        meant = own and REFERENCE.is_meant(self, [actor, critics, target, self.actions])
        if not (meant and fits(actor.backbone, actor.head.output, self.critics)):
            return None
        return SACKernel(actor, self.critics, target)

    def update(self, batch: Batch) -> UpdateResult:
        self.updates += 1
        rows, alpha = self.prepare(batch), self.alpha()
        metrics: Metrics = {}
        errors = self.improve_critics(rows, alpha, metrics)
        logprobs = self.improve_actor(rows, alpha, metrics)
        self.improve_temperature(rows, logprobs, metrics)
        self.targets["critics"].follow(self.hp.tau)
        return UpdateResult(metrics, None if rows.weights is None else errors.abs().mean(0).cpu().numpy())

    def alpha(self) -> Tensor | float:
        """The present temperature."""
        if self.temperature is not None:
            return self.temperature.log_alpha.detach().exp()
        assert self.hp.alpha is not None
        return self.hp.alpha

    def improve_critics(self, rows: Transitions, alpha: Tensor | float, metrics: Metrics) -> Tensor:
        """One step towards the soft Bellman targets; returns the errors (E, B)."""
        step = self.critics_gradient(rows, alpha)
        metrics["critic_loss"] = step.loss
        metrics["critic_grad_norm"] = self.apply("critics", step.loss, metrics)
        metrics["value_mean"] = step.value_mean
        return step.errors

    def critics_gradient(self, rows: Transitions, alpha: Tensor | float) -> CriticStep:
        if self.kernel is not None:
            return self.kernel.critics_gradient(rows, float(alpha), self.action_noise(rows))
        with torch.no_grad():
            targets = self.targets_of(rows, alpha)
        values = self.actions.values_taken(rows)
        loss = self.loss_of_critics(values, targets, rows.weights)
        self.learners["critics"].backward(loss)
        return CriticStep(loss.detach(), values.detach().mean(), (values - targets).detach())

    def targets_of(self, rows: Transitions, alpha: Tensor | float) -> Tensor:
        """What the critics should have said of the actions taken: the soft Bellman targets, (B,)."""
        soft_values = self.actions.soft_values(rows.next_obs, alpha)
        return td_targets(rows.rewards, rows.discounts, rows.terminated, soft_values)

    def loss_of_critics(self, values: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """One number for the values (E, B) of E critics."""
        return critic_loss(values, targets, weights)

    def improve_actor(self, rows: Transitions, alpha: Tensor | float, metrics: Metrics) -> Tensor:
        """One step towards what the critics value; returns the log-densities of the actions (B,)."""
        loss, logprobs = self.actor_gradient(rows, alpha)
        metrics["actor_loss"] = loss
        metrics["entropy"] = -logprobs.mean()
        metrics["actor_grad_norm"] = self.apply("actor", loss, metrics)
        return logprobs

    def actor_gradient(self, rows: Transitions, alpha: Tensor | float) -> tuple[Tensor | float, Tensor]:
        if self.kernel is not None:
            return self.kernel.actor_gradient(rows, float(alpha), self.action_noise(rows))
        logprobs, values = self.actions.logprobs_and_values(rows.obs)
        loss = self.loss_of_actor(logprobs, values, alpha)
        self.learners["actor"].backward(loss)
        return loss.detach(), logprobs.detach()

    def loss_of_actor(self, logprobs: Tensor, values: Tensor, alpha: Tensor | float) -> Tensor:
        """One number for log-densities and values of the policy's own actions, (B,) each."""
        return actor_loss(logprobs, values, alpha)

    def action_noise(self, rows: Transitions) -> Array:
        """Of a sample for every row, as the kernel takes it."""
        return self.noise(*rows.actions.flatten(1).shape).numpy()

    def improve_temperature(self, rows: Transitions, logprobs: Tensor, metrics: Metrics) -> None:
        """One step towards the target entropy, where the temperature is learnt."""
        metrics["alpha"] = self.alpha()
        if self.temperature is None:
            return
        mask, target = action_mask(rows.obs), self.target_entropy
        wanted = target if mask is None else target * allowed_share(mask)
        loss = temperature_loss(self.temperature.log_alpha, logprobs, wanted)
        metrics["temperature_loss"] = loss.detach()
        self.step("temperature", loss, metrics)


class SampledActions:
    """Continuous actions enter the losses as samples of the policy."""

    def __init__(self, actor: GaussianActor, sac: SAC) -> None:
        self.actor, self.sac = actor, sac

    def sample(self, obs: TensorObs) -> tuple[Tensor, Tensor]:
        first = next(iter(obs.values())) if isinstance(obs, dict) else obs
        return self.actor.sample(obs, self.sac.noise(len(first), math.prod(self.actor.head.shape)))

    def soft_values(self, obs: TensorObs, alpha: Tensor | float) -> Tensor:
        """What the target critics and the temperature make of the policy's own actions, (B,)."""
        actions, logprobs = self.sample(obs)
        return cast(Tensor, self.sac.targets["critics"].network(obs, actions).amin(0) - alpha * logprobs)

    def values_taken(self, rows: Transitions) -> Tensor:
        """The critics' values of the actions in the batch, (E, B)."""
        return cast(Tensor, self.sac.critics(rows.obs, rows.actions))

    def logprobs_and_values(self, obs: TensorObs) -> tuple[Tensor, Tensor]:
        """Log-densities and values of fresh actions, (B,) each; gradients reach the actor only."""
        actions, logprobs = self.sample(obs)
        with self.sac.learners["critics"].frozen():
            return logprobs, self.sac.critics(obs, actions).amin(0)


class CountedActions:
    """Discrete actions enter as expectations over all of them (Christodoulou 2019)."""

    def __init__(self, actor: CategoricalActor, sac: SAC) -> None:
        self.actor, self.sac = actor, sac

    def soft_values(self, obs: TensorObs, alpha: Tensor | float) -> Tensor:
        logprobs = self.actor(obs)
        values = self.sac.targets["critics"].network(obs).amin(0) - alpha * logprobs
        return cast(Tensor, (logprobs.exp() * values).sum(1))

    def values_taken(self, rows: Transitions) -> Tensor:
        index = rows.actions.long().view(1, -1, 1).expand(self.sac.hp.num_critics, -1, 1)
        return cast(Tensor, self.sac.critics(rows.obs).gather(2, index).squeeze(2))

    def logprobs_and_values(self, obs: TensorObs) -> tuple[Tensor, Tensor]:
        logprobs = self.actor(obs)
        with torch.no_grad():
            values = self.sac.critics(obs).amin(0)
        return (logprobs.exp() * logprobs).sum(1), (logprobs.exp() * values).sum(1)


REFERENCE = Reference(SAC, ["targets_of", "loss_of_critics", "loss_of_actor"], [td_targets, critic_loss, actor_loss])
