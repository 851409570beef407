"""Proximal Policy Optimisation (Schulman et al. 2017, arXiv:1707.06347), clipped surrogate.

Top to bottom: the loss as a pure function, then the class that calls it. Hyperparameters are in `hparams/ppo.py`;
acting, values, advantages and the optimiser step are shared with A2C and REINFORCE in `on_policy.py`.

What differs from common implementations: the value of a truncated episode's final observation enters the advantages;
log-probabilities and values of the acting policy are computed in one pass at the start of the update, not while acting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.kernel_choice import Kernel, Readable, allows_fast, using_reference
from rl_training.algorithms.on_policy import OnPolicyAlgorithm, ReferenceKernel
from rl_training.algorithms.rnd import INTRINSIC, RandomNetworkDistillation
from rl_training.algorithms.rollout import Rollout
from rl_training.algorithms.sharding import ShardedRollout, ShardedRows
from rl_training.build_context import BuildContext
from rl_training.hparams.ppo import SPEC, PPOConfig
from rl_training.numerics.metrics import mean_metrics
from rl_training.numerics.normalization import normalized, standardized
from rl_training.numerics.returns import explained_variance
from rl_training.seeding import generator_state, set_generator_state
from rl_training.types import Array, Batch, Metrics, StateDict, UpdateResult

__all__ = ["PPO", "SPEC", "PPOConfig", "ReferenceKernel", "ppo_loss"]


def ppo_loss(
    minibatch: Mapping[str, Tensor],
    *,
    clip_coef: float,
    ent_coef: float,
    vf_coef: float,
    clip_vf: float | None = None,
) -> dict[str, Tensor]:
    """The PPO objective on a minibatch of B rows.

    `minibatch`: logprobs and new_values and entropy of the network being trained; old_logprobs and values of the one
    that acted; advantages (used as given) and returns. All (B,).

    loss = policy_loss + vf_coef * value_loss + ent_coef * entropy_loss
    """
    log_ratio = minibatch["logprobs"] - minibatch["old_logprobs"]
    ratio = log_ratio.exp()
    advantages = minibatch["advantages"]
    clipped_ratio = ratio.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    policy_loss = -torch.min(ratio * advantages, clipped_ratio * advantages).mean()

    errors = (minibatch["new_values"] - minibatch["returns"]).square()
    if clip_vf is not None:
        old_values = minibatch["values"]
        clipped_values = old_values + (minibatch["new_values"] - old_values).clamp(-clip_vf, clip_vf)
        errors = torch.max(errors, (clipped_values - minibatch["returns"]).square())
    value_loss = 0.5 * errors.mean()

    entropy_loss = -minibatch["entropy"].mean()
    with torch.no_grad():
        approx_kl = (ratio - 1.0 - log_ratio).mean()  # the k3 estimator: never negative, low variance
        clip_fraction = ((ratio - 1.0).abs() > clip_coef).float().mean()
    return {
        "loss": policy_loss + vf_coef * value_loss + ent_coef * entropy_loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy_loss": entropy_loss,
        "approx_kl": approx_kl,
        "clip_fraction": clip_fraction,
    }


class Coefficients(NamedTuple):
    """Coefficients of `ppo_loss` at the current step."""

    clip_coef: float
    ent_coef: float
    vf_coef: float
    clip_vf: float | None


class PPO(OnPolicyAlgorithm):
    """Several epochs of minibatch steps on each rollout, stopped early if the policy moved too far."""

    hp: PPOConfig

    def __init__(self, ctx: BuildContext, hp: PPOConfig) -> None:
        super().__init__(ctx, hp)
        self.rng = ctx.streams("minibatch")
        self.exploration = RandomNetworkDistillation(ctx, hp.exploration) if hp.has_intrinsic_value else None

    @cached_property
    def kernel(self) -> Kernel:
        """Chosen once, at the first update: a subclass may replace parts until its own constructor has run."""
        from rl_training.algorithms.kernels.ppo import FastKernel, fits

        if self.ctx.shards is not None:  # the fast kernel normalises the advantages of the rows that it is given
            return self.in_shards(self.reference_kernel())
        ours = self.exploration is None and READABLE.is_unchanged(self, [self.network])
        if ours and allows_fast(self.hp) and fits(self):
            return FastKernel(self)
        return self.reference_kernel()

    def reference_kernel(self) -> ReferenceKernel:
        """Gradients by autograd, for this algorithm and debug mode."""
        return ReferenceKernel(self.hp.grad_accumulation)

    def reference_gradients(self) -> AbstractContextManager[None]:
        """Inside, gradients come from autograd, through modules that can be inspected."""
        return using_reference(self)

    def update(self, batch: Batch) -> UpdateResult:
        if self.exploration is not None:
            batch = {**batch, INTRINSIC: self.exploration.rewards(batch)}
        rollout = self.learnable(batch)
        coefficients = Coefficients(
            self.scheduled("clip_coef"), self.scheduled("ent_coef"), self.hp.vf_coef, self.hp.clip_vf
        )
        records: list[Mapping[str, Tensor | float]] = []
        epochs, stop = 0, False
        while epochs < self.hp.num_epochs and not stop:
            epochs += 1
            for minibatch, last_of_step in self.minibatches(rollout):
                losses = self.gradient(minibatch, coefficients)
                stop = self.moved_too_far(losses)
                if stop:
                    break
                if last_of_step:
                    losses["grad_norm"] = self.apply_gradients(losses)
                    self.optimizer.zero_grad()
                records.append(losses)
        self.optimizer.zero_grad()
        metrics = {**mean_metrics(records, stacked_mean), "epochs": epochs, "clip_coef": coefficients.clip_coef}
        return UpdateResult(metrics | self.rollout_metrics(rollout) | self.explored(batch, rollout))

    def targets(self, batch: Batch, rewards: Array, values: Array, edge_values: Array) -> tuple[Array, Array]:
        """Advantages (T, N) and returns; with exploration a weighted sum of advantages, and returns (T, N, 2)."""
        if self.exploration is None:
            return super().targets(batch, rewards, values, edge_values)
        advantages, returns = super().targets(batch, rewards, values[..., 0], edge_values[..., 0])
        own = self.exploration.targets(batch, values[..., 1], edge_values[..., 1], self.hp.gae_lambda)
        total = self.hp.exploration.extrinsic_coef * advantages + self.hp.exploration.coef * own.advantages
        return total, np.stack([returns, own.returns], axis=-1)

    def explored(self, batch: Batch, rollout: Rollout | ShardedRollout) -> Metrics:
        """Let the exploration bonus learn from a rollout; nothing without exploration."""
        if self.exploration is None:
            return {}
        values, returns = rollout.values[:, 1], rollout.returns[:, 1]
        return {
            "intrinsic_reward_mean": float(batch[INTRINSIC][batch["valid"]].mean()),
            "intrinsic_return_mean": returns.mean(),
            "intrinsic_explained_variance": explained_variance(values.cpu().numpy(), returns.cpu().numpy()),
            **self.exploration.learn(batch, self.hp.num_epochs, self.hp.num_minibatches),
        }

    def gradient(
        self, minibatch: Rollout | ShardedRows[Rollout], coefficients: Coefficients
    ) -> dict[str, Tensor | float]:
        """Add the gradient of `loss` on a minibatch to that of the parameters; returns the losses."""
        return cast(dict[str, Tensor | float], self.kernel.gradient("network", self.loss, minibatch, coefficients))

    def loss(self, rollout: Rollout, coefficients: Coefficients) -> dict[str, Tensor]:
        """`ppo_loss` on some rows of a rollout under the current network, plus the loss of a second value head."""
        logprobs, entropy, new_values = self.evaluated(rollout)
        rollout, intrinsic_loss = rollout.learnt(), None
        if self.exploration is not None:
            intrinsic_loss = 0.5 * (new_values[:, 1] - rollout.returns[:, 1]).square().mean()
            rollout = replace(rollout, values=rollout.values[:, 0], returns=rollout.returns[:, 0])
            new_values = new_values[:, 0]
        minibatch = {
            "logprobs": logprobs,
            "old_logprobs": rollout.logprobs,
            "advantages": self.scaled_advantages(rollout),
            "returns": rollout.returns,
            "values": rollout.values,
            "new_values": new_values,
            "entropy": entropy,
        }
        losses = ppo_loss(minibatch, **coefficients._asdict())
        if intrinsic_loss is None:
            return losses
        total = losses["loss"] + coefficients.vf_coef * intrinsic_loss
        return {**losses, "loss": total, "intrinsic_value_loss": intrinsic_loss}

    def scaled_advantages(self, rollout: Rollout) -> Tensor:
        """Advantages of a minibatch, or of a shard of it, normalised over the whole minibatch where that is wanted."""
        if not self.hp.normalize_advantage:
            return rollout.advantages
        return (
            normalized(rollout.advantages)
            if rollout.moments is None
            else standardized(rollout.advantages, *rollout.moments)
        )

    def minibatches(self, rollout: Rollout | ShardedRollout) -> Iterator[tuple[Rollout | ShardedRows[Rollout], bool]]:
        """One pass in random order. The flag marks the last minibatch before an optimiser step."""
        parts = rollout.split(self.rng, self.hp.num_minibatches)
        for number, index in enumerate(parts, 1):
            yield rollout.rows(index), number % self.hp.grad_accumulation == 0 or number == len(parts)

    def moved_too_far(self, losses: Mapping[str, Tensor | float]) -> bool:
        if self.hp.target_kl is None:
            return False
        # a non-finite loss is for the guard to report, not a reason to end the update early as if all were well
        approx_kl, loss = float(losses["approx_kl"]), float(losses["loss"])
        return 1.5 * self.hp.target_kl < approx_kl < math.inf and math.isfinite(loss)

    def watched(self) -> Iterator[Tensor | Array]:
        yield from super().watched()
        if self.exploration is not None:
            yield from self.exploration.watched()

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        yield from super().named_modules()
        if self.exploration is not None:
            yield "predictor", self.exploration.predictor

    def named_optimizers(self) -> Iterator[tuple[str, Any]]:
        yield from super().named_optimizers()
        if self.exploration is not None:
            yield "predictor", self.exploration.optimizer

    def drop_open_episodes(self) -> None:
        super().drop_open_episodes()
        if self.exploration is not None:
            self.exploration.drop_open_episodes()

    def state_dict(self) -> StateDict:
        exploration = {} if self.exploration is None else {"exploration": self.exploration.state_dict()}
        return {**super().state_dict(), "rng": generator_state(self.rng), **exploration}

    def load_state_dict(self, state: StateDict, /) -> None:
        super().load_state_dict(state)
        set_generator_state(self.rng, state["rng"])
        if self.exploration is not None:
            self.exploration.load_state_dict(state["exploration"])


READABLE = Readable(PPO, ["loss", "scaled_advantages"], [ppo_loss, normalized])


def stacked_mean(values: Sequence[Tensor | float]) -> Tensor:
    """The mean as one reduction on the device."""
    return torch.stack([torch.as_tensor(value) for value in values]).mean()
