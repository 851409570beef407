"""Independent PPO (de Witt et al. 2020, arXiv:2011.09533) and multi-agent PPO (Yu et al. 2022, arXiv:2103.01955).

Both are PPO on rows of agents; they differ in what the critic sees (`hparams.critic_input`). What is here beyond PPO is
value normalisation: the critic's output n stands for the value n * std + mean of a scale that moves with the returns.
When the scale moves, the last layer is rescaled so that no value changes by it (PopArt, van Hasselt et al. 2016,
arXiv:1602.07714). Advantages are computed from values in their true units.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from rl_training.algorithms.on_policy import ActorCriticPolicy
from rl_training.algorithms.ppo import PPO
from rl_training.algorithms.rollout import Rollout
from rl_training.algorithms.sharding import ShardedRollout
from rl_training.build_context import BuildContext
from rl_training.hparams.ippo import SPEC, IPPOConfig
from rl_training.numerics.value_scale import ValueScale
from rl_training.types import Array, Batch, Metrics, StateDict

__all__ = ["IPPO", "SPEC", "IPPOConfig", "rescale"]


@torch.no_grad()
def rescale(output: nn.Linear, before: tuple[float, float], after: tuple[float, float]) -> None:
    """Change the units of a layer's outputs from `before` to `after`, both (mean, std), in place: what n * std + mean
    gives stays the same."""
    (mean, std), (new_mean, new_std) = before, after
    output.weight.mul_(std / new_std)
    output.bias.copy_((output.bias * std + mean - new_mean) / new_std)


class ScaledPolicy(ActorCriticPolicy):
    """An actor-critic that is saved with the scale of its values."""

    def __init__(self, ctx: BuildContext, hp: IPPOConfig) -> None:
        super().__init__(ctx, hp)
        self.scale = ValueScale()

    @property
    def units(self) -> tuple[float, float]:
        """(mean, std) of the values that the network's outputs stand for."""
        return self.scale.mean, self.scale.std

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "value_scale": self.scale.state_dict()}

    def load_state_dict(self, state: StateDict, /) -> None:
        super().load_state_dict(state)
        if "value_scale" in state:  # a checkpoint of backend jax without normalised values has none
            self.scale.load_state_dict(state["value_scale"])


class IPPO(PPO):
    """PPO with normalised values. Without them it is PPO, bit for bit."""

    hp: IPPOConfig
    policy: ScaledPolicy

    def __init__(self, ctx: BuildContext, hp: IPPOConfig) -> None:
        super().__init__(ctx, hp)
        self.acted_in = self.policy.units
        """Units of the values under the policy that collected the rollout of this update."""

    def build_policy(self) -> ScaledPolicy:
        return ScaledPolicy(self.ctx, self.hp)

    def acting_policy(self, batch: Batch) -> ScaledPolicy:
        policy = super().acting_policy(batch)
        assert isinstance(policy, ScaledPolicy)
        return policy

    def prepare(self, batch: Batch) -> Rollout:
        """The rollout in the units of the current scale, which has moved towards its returns."""
        if not self.hp.normalize_value:
            return super().prepare(batch)
        self.acted_in = self.acting_policy(batch).units
        rollout = super().prepare(batch)
        mean, std = self.acted_in
        before = self.policy.units
        self.policy.scale.update(rollout.learnt().returns.cpu().numpy())
        rescale(self.network.value_head.output, before, self.policy.units)
        new_mean, new_std = self.policy.units
        return replace(
            rollout,
            values=(rollout.values * std + mean - new_mean) / new_std,
            returns=(rollout.returns - new_mean) / new_std,
        )

    def targets(self, batch: Batch, rewards: Array, values: Array, edge_values: Array) -> tuple[Array, Array]:
        if not self.hp.normalize_value:
            return super().targets(batch, rewards, values, edge_values)
        mean, std = self.acted_in
        return super().targets(batch, rewards, values * std + mean, edge_values * std + mean)

    def rollout_metrics(self, rollout: Rollout | ShardedRollout) -> Metrics:
        metrics = super().rollout_metrics(rollout)
        if self.hp.normalize_value:
            mean, std = self.policy.units
            metrics |= {"value_mean": metrics["value_mean"] * std + mean, "value_scale": std}
        return metrics
