"""Advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016, arXiv:1602.01783).

One gradient step on each short rollout as a whole. At that step PPO's ratio is 1, so A2C is PPO with one epoch and one
minibatch; what differs is the plain log-probability loss below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from rl_training.algorithms.on_policy import OnPolicyAlgorithm
from rl_training.algorithms.rollout import Rollout
from rl_training.algorithms.sharding import ShardedRollout
from rl_training.hparams.a2c import SPEC, A2CConfig
from rl_training.numerics.normalization import normalized, standardized
from rl_training.types import Batch, UpdateResult

__all__ = ["A2C", "SPEC", "A2CConfig", "policy_gradient_loss", "policy_gradient_update"]


def policy_gradient_loss(minibatch: Mapping[str, Tensor], *, ent_coef: float, vf_coef: float) -> dict[str, Tensor]:
    """-mean(logprob * advantage) + vf_coef * half the squared value error - ent_coef * entropy, on B rows."""
    policy_loss = -(minibatch["logprobs"] * minibatch["advantages"]).mean()
    value_loss = 0.5 * (minibatch["new_values"] - minibatch["returns"]).square().mean()
    entropy_loss = -minibatch["entropy"].mean()
    return {
        "loss": policy_loss + vf_coef * value_loss + ent_coef * entropy_loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy_loss": entropy_loss,
    }


def policy_gradient_update(
    algorithm: OnPolicyAlgorithm, rollout: Rollout | ShardedRollout, weights: Callable[[Rollout], Tensor]
) -> UpdateResult:
    """One optimiser step on a whole rollout, with the log-probabilities of its rows weighted by `weights` of them."""
    hp = algorithm.hp

    def loss(rows: Rollout) -> dict[str, Tensor]:
        logprobs, entropy, new_values = algorithm.evaluated(rows)
        rows = rows.learnt()
        minibatch = {
            "logprobs": logprobs,
            "advantages": weights(rows),
            "returns": rows.returns,
            "new_values": new_values,
            "entropy": entropy,
        }
        if hp.normalize_advantage:
            given, moments = minibatch["advantages"], rows.moments
            minibatch["advantages"] = normalized(given) if moments is None else standardized(given, *moments)
        return policy_gradient_loss(minibatch, ent_coef=algorithm.scheduled("ent_coef"), vf_coef=hp.vf_coef)

    losses = algorithm.step(loss, rollout)
    return UpdateResult(losses | algorithm.rollout_metrics(rollout.learnt()))


class A2C(OnPolicyAlgorithm):
    """One step per rollout along the policy gradient."""

    hp: A2CConfig

    def update(self, batch: Batch) -> UpdateResult:
        return policy_gradient_update(self, self.learnable(batch), lambda rows: rows.advantages)
