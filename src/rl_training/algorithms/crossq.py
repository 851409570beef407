"""CrossQ (Bhatt et al. 2024, arXiv:1902.05605): SAC without target networks, sample-efficient.

The critics are batch-normalised, and this and the next state pass through them in one batch, so that both have the
same statistics; that makes target networks unnecessary. The losses and the temperature are
those of `sac.py`.

What differs from the paper: critics are 512 wide instead of 2048 (`network.critic`).
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.off_policy import CriticStep, OffPolicyAlgorithm, Transitions, critic_loss, td_targets
from rl_training.algorithms.policies import NetworkPolicy
from rl_training.algorithms.sac import ActorStep, Temperature, actor_loss, temperature_loss
from rl_training.build_context import BuildContext
from rl_training.config.networks import has_memory
from rl_training.export.graph import PolicyGraph
from rl_training.hparams.crossq import SPEC, CrossQConfig
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.batch_renorm import RenormNetwork, concatenated
from rl_training.models.heads import bounded_log_std, tanh_gaussian_logprob
from rl_training.models.networks import as_tensors
from rl_training.models.observed import rows_of
from rl_training.numerics.encoding import to_bounds
from rl_training.numerics.initial_weights import POLICY_GAIN, VALUE_GAIN
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.numerics.stable import raw_log_std
from rl_training.types import ActResult, Array, Batch, BoxSpec, Carry, ConfigError, Metrics, Obs, UpdateResult

__all__ = ["SPEC", "CrossQ", "CrossQConfig"]


class RenormActor(nn.Module):
    """A tanh-squashed Gaussian over actions in -1..1, on a batch-normalised network."""

    def __init__(self, ctx: BuildContext, hp: CrossQConfig, size: int, rng: np.random.Generator) -> None:
        super().__init__()
        norm = (hp.norm_momentum, hp.renorm_after_updates)
        sizes = (1, 0, 2 * size)
        self.network = RenormNetwork(ctx.actor_space, ctx.network.actor, rng, sizes, norm, POLICY_GAIN)
        with torch.no_grad():  # a first standard deviation of 1 before the tanh
            self.network.output.bias[..., size:] = raw_log_std(0.0)

    def parameters_of(self, obs: TensorObs, batch_statistics: bool) -> tuple[Tensor, Tensor]:
        """Means and log standard deviations before the tanh, (B, A) each."""
        mean, raw = self.network(obs, None, batch_statistics)[0].chunk(2, dim=1)
        return mean, bounded_log_std(raw)

    def sample(self, obs: TensorObs, noise: Tensor, batch_statistics: bool) -> tuple[Tensor, Tensor]:
        """Differentiable actions (B, A) and their log-densities (B,)."""
        mean, log_std = self.parameters_of(obs, batch_statistics)
        pre_tanh = mean + log_std.exp() * noise
        return torch.tanh(pre_tanh), tanh_gaussian_logprob(pre_tanh, mean, log_std)


class RenormPolicy(NetworkPolicy):
    """Acts with the running statistics of the normalisation."""

    def __init__(self, actor: RenormActor, ctx: BuildContext, normalizer: ObsNormalizer | None) -> None:
        super().__init__(actor, ctx, normalizer)
        self.actor = actor

    def graph(self) -> PolicyGraph | None:
        return self.graph_with("renorm")

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        with torch.no_grad():
            tensors = self.actor.parameters_of(as_tensors(self.normalize(obs), self.device), False)
        mean, log_std = (tensor.cpu().numpy() for tensor in tensors)
        if not deterministic:
            mean = mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)
        space = cast(BoxSpec, self.action_space)
        actions = np.tanh(mean).reshape(len(mean), *space.shape)
        return ActResult(actions, to_bounds(space, actions), carry)


class CrossQ(OffPolicyAlgorithm):
    """SAC with batch-normalised critics and without target networks."""

    hp: CrossQConfig

    def __init__(self, ctx: BuildContext, hp: CrossQConfig) -> None:
        super().__init__(ctx, hp)
        for name, backbone in (("actor", ctx.network.actor), ("critic", ctx.network.critic)):
            if backbone.type != "mlp":
                raise ConfigError(f"crossq normalises the layers of an mlp; network.{name}.type is '{backbone.type}'")
            if has_memory(backbone):
                raise ConfigError(f"crossq has no networks with memory; set network.{name}.memory to none, or take sac")
        rng, space = ctx.streams("init"), cast(BoxSpec, ctx.action_space)
        self.size = math.prod(space.shape)
        self.actor = RenormActor(ctx, hp, self.size, rng)
        norm, sizes = (hp.norm_momentum, hp.renorm_after_updates), (hp.num_critics, self.size, 1)
        self.critics = RenormNetwork(ctx.observation_space, ctx.network.critic, rng, sizes, norm, VALUE_GAIN)
        self.learner("actor", self.actor)
        self.learner("critics", self.critics)
        self.temperature = None if hp.alpha is not None else Temperature()
        if self.temperature is not None:
            self.learner("temperature", self.temperature)
        self.target_entropy = -float(self.size) if hp.target_entropy is None else hp.target_entropy
        self.kernel = self.reference_kernel()
        self.policy = RenormPolicy(self.actor, ctx, self.normalizer)

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the critics; at every `actor_every_updates`-th call of the actor and the temperature too."""
        self.updates += 1
        rows, alpha, metrics = self.prepare(batch), self.alpha(), cast(Metrics, {})

        critics = self.kernel.gradient("critics", self.critics_objective, rows, alpha)
        metrics["critic_loss"] = critics.loss
        metrics["critic_grad_norm"] = self.apply("critics", critics.loss, metrics)
        metrics["value_mean"] = critics.value_mean
        metrics["alpha"] = alpha

        if self.updates % self.hp.actor_every_updates == 0:
            actor = self.kernel.gradient("actor", self.actor_objective, rows, alpha)
            metrics["actor_loss"] = actor.loss
            metrics["entropy"] = -actor.logprobs.mean()
            metrics["actor_grad_norm"] = self.apply("actor", actor.loss, metrics)
            if self.temperature is not None:
                loss = temperature_loss(self.temperature.log_alpha, actor.logprobs, self.target_entropy)
                metrics["temperature_loss"] = loss.detach()
                self.step("temperature", loss, metrics)

        return UpdateResult(metrics, None if rows.weights is None else critics.errors.abs().mean(0).cpu().numpy())

    def alpha(self) -> Tensor | float:
        """Current temperature."""
        if self.temperature is not None:
            return self.temperature.log_alpha.detach().exp()
        return self.hp.alpha or 0.0

    def critics_objective(self, rows: Transitions, alpha: Tensor | float) -> CriticStep:
        """Squared errors of the critics, which see this and the next state in one batch, towards the soft targets."""
        size, next_obs = len(rows.rewards), rows_of(rows.next_obs)
        with torch.no_grad():
            next_actions, next_logprobs = self.actor.sample(next_obs, self.noise(size, self.size), False)
        obs, actions = concatenated(rows_of(rows.obs), next_obs), torch.cat([rows.actions.flatten(1), next_actions])
        values, next_values = self.critics(obs, actions, True).squeeze(2).split(size, dim=1)
        soft_values = next_values.detach().amin(0) - alpha * next_logprobs
        targets = td_targets(rows.rewards, rows.discounts, rows.terminated, soft_values)
        loss = critic_loss(values, targets, rows.weights)
        return CriticStep(loss, values.detach().mean(), (values - targets).detach())

    def actor_objective(self, rows: Transitions, alpha: Tensor | float) -> ActorStep:
        """Entropy-regularised value of the policy's own actions; gradients reach the actor only."""
        obs = rows_of(rows.obs)
        actions, logprobs = self.actor.sample(obs, self.noise(len(rows.rewards), self.size), True)
        with self.learners["critics"].frozen():
            values = self.critics(obs, actions, False).squeeze(2).amin(0)
        return ActorStep(actor_loss(logprobs, values, alpha), logprobs.detach())
