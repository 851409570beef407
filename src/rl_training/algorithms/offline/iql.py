"""Implicit Q-learning (Kostrikov et al. 2021, arXiv:2110.06169).

The state value is an expectile of the target critics' values of the dataset's actions, the critics bootstrap from it,
and the actor imitates the dataset's actions, weighted by how much better than the state value they are. So no action
that the dataset lacks is ever valued. Advantages and next values are those from before the state value moved.

The actor is a Gaussian around a tanh, with one spread per dimension whatever the state; its density is not squashed,
and actions are clipped to -1..1.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.off_policy import OffPolicyAlgorithm, Transitions, critic_loss, td_targets
from rl_training.algorithms.policies import NetworkPolicy, TorchParts, host_forward
from rl_training.algorithms.td3 import DeterministicActor
from rl_training.build_context import BuildContext
from rl_training.config.schema import NetworkConfig
from rl_training.export.graph import PolicyGraph
from rl_training.hparams.iql import SPEC, IQLConfig
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.models.critics import QCritics
from rl_training.models.networks import ValueNetwork
from rl_training.models.observed import Seen
from rl_training.numerics.encoding import to_bounds
from rl_training.types import ActResult, Array, Batch, BoxSpec, Carry, Metrics, Obs, SpaceSpec, UpdateResult

__all__ = ["IQL", "SPEC", "IQLConfig", "advantage_weights", "expectile_loss", "imitation_loss"]

LOG_STD_RANGE = -20.0, 2.0
LOG_TWO_PI = math.log(2.0 * math.pi)


def expectile_loss(advantages: Tensor, expectile: float) -> Tensor:
    """Mean of |expectile - 1(u < 0)| u^2 for u (B,): with 0.5 half the mean squared error."""
    weights = torch.where(advantages < 0.0, 1.0 - expectile, expectile)
    return (weights * advantages.square()).mean()


def advantage_weights(advantages: Tensor, beta: float, largest: float) -> Tensor:
    """exp(beta u), at most `largest`; the exponent is cut first, so that nothing overflows."""
    return (beta * advantages).clamp(max=math.log(largest)).exp()


def imitation_loss(actor: SpreadActor, rows: Transitions, weights: Tensor) -> Tensor:
    """Minus the log-densities of the dataset's actions, weighted by (B,) and averaged."""
    return -(weights * actor.logprobs(rows.obs, rows.actions)).mean()


class SpreadActor(nn.Module):
    """A Gaussian over actions: its mean is within -1..1, its spread does not depend on the state."""

    def __init__(
        self, observation_space: SpaceSpec, action_space: BoxSpec, network: NetworkConfig, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.mean = DeterministicActor(observation_space, action_space, network, rng)
        self.log_std = nn.Parameter(torch.zeros(math.prod(action_space.shape)))

    def logprobs(self, obs: Seen, actions: Tensor) -> Tensor:
        """Log-densities (B,) of actions (B, ...) in -1..1."""
        mean, log_std = self.mean(obs), self.log_std.clamp(*LOG_STD_RANGE)
        errors = (actions.reshape(mean.shape) - mean) / log_std.exp()
        return cast(Tensor, (-0.5 * errors.square() - log_std - 0.5 * LOG_TWO_PI).sum(1))

    def sample(self, obs: Seen, noise: Tensor) -> Tensor:
        """Actions (B, A), clipped to -1..1."""
        return cast(Tensor, (self.mean(obs) + self.log_std.clamp(*LOG_STD_RANGE).exp() * noise).clamp(-1.0, 1.0))


class SpreadPolicy(NetworkPolicy):
    """The mean of a `SpreadActor`, or a draw from it, clipped to -1..1."""

    def __init__(self, actor: SpreadActor, ctx: BuildContext, normalizer: object) -> None:
        super().__init__(actor, ctx, normalizer)  # type: ignore[arg-type]
        self.actor, self.backbone = actor, actor.mean.backbone
        self.outputs = host_forward(actor.mean.backbone, actor.mean.output, self.device)

    def graph(self) -> PolicyGraph | None:
        return self.graph_with("deterministic")

    def torch_parts(self) -> TorchParts:
        return TorchParts(self.actor.mean.backbone, self.actor.mean.output, squash=True)

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        outputs, carry = self.outputs(self.normalize(obs), carry, is_first)
        actions = np.tanh(outputs)
        if not deterministic:
            std = np.exp(np.clip(self.actor.log_std.detach().cpu().numpy(), *LOG_STD_RANGE))
            noise = rng.standard_normal(actions.shape, dtype=np.float32)
            actions = np.clip(actions + std * noise, -1.0, 1.0)
        space = cast(BoxSpec, self.action_space)
        actions = actions.reshape(len(actions), *space.shape)
        return ActResult(actions, to_bounds(space, actions), carry)


class IQL(OffPolicyAlgorithm):
    """State value, critics, actor: three supervised problems in turn."""

    def __init__(self, ctx: BuildContext, hp: IQLConfig) -> None:
        super().__init__(ctx, cast(OffPolicyHparams, hp))
        self.options = hp
        rng, space = ctx.streams("init"), cast(BoxSpec, ctx.action_space)
        self.actor = SpreadActor(ctx.observation_space, space, ctx.network, rng)
        self.critics = QCritics(ctx.observation_space, space, ctx.network.critic, rng, hp.num_critics)
        self.value = ValueNetwork(ctx.observation_space, ctx.network.critic, rng)
        self.learner("actor", self.actor)
        self.learner("critics", self.critics)
        self.learner("value", self.value)
        self.target("critics")
        self.act_with(SpreadPolicy(self.actor, ctx, self.normalizer))

    def update(self, batch: Batch) -> UpdateResult:
        """One step of each network."""
        self.updates += 1
        rows, metrics, hp = self.prepare(batch), cast(Metrics, {}), self.options
        with torch.no_grad():
            goals = self.targets["critics"].network(rows.obs, rows.actions).amin(0)
            next_values = self.value(rows.next_obs)
            targets = td_targets(rows.rewards, rows.discounts, rows.terminated, next_values)

        values = self.value(rows.obs)
        advantages = (goals - values).detach()
        value_loss = expectile_loss(goals - values, hp.expectile)
        metrics["value_loss"] = value_loss.detach()
        metrics["value_grad_norm"] = self.step("value", value_loss, metrics)

        estimates = self.critics(rows.obs, rows.actions)
        loss = critic_loss(estimates, targets)
        metrics["critic_loss"] = loss.detach()
        metrics["critic_grad_norm"] = self.step("critics", loss, metrics)
        metrics["value_mean"] = estimates.detach().mean()
        self.targets["critics"].follow(hp.tau)

        loss = imitation_loss(self.actor, rows, advantage_weights(advantages, hp.beta, hp.max_weight))
        metrics["actor_loss"] = loss.detach()
        metrics["actor_grad_norm"] = self.step("actor", loss, metrics)
        metrics["advantage_mean"] = advantages.mean()
        return UpdateResult(metrics)

    def rate(self, name: str) -> float:
        """Current step size; the actor's falls to 0 along a cosine."""
        decays = name == "actor" and self.options.actor_decay
        return super().rate(name) * (0.5 * (1.0 + math.cos(math.pi * self.ctx.fraction)) if decays else 1.0)
