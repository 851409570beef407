"""REINFORCE (Williams 1992): weight each action's log-probability by the return that followed it.

With `gae_lambda: 1` (the default) A2C's advantage is exactly "return minus baseline", so REINFORCE takes A2C's step on
longer rollouts. Episodes still open when a rollout ends are completed by the critic's value, as are truncated ones.
"""

from __future__ import annotations

from rl_training.algorithms.a2c import policy_gradient_update
from rl_training.algorithms.on_policy import OnPolicyAlgorithm
from rl_training.hparams.reinforce import SPEC, ReinforceConfig
from rl_training.types import Batch, UpdateResult

__all__ = ["SPEC", "Reinforce", "ReinforceConfig"]


class Reinforce(OnPolicyAlgorithm):
    """One step per rollout along the Monte Carlo policy gradient."""

    hp: ReinforceConfig

    def update(self, batch: Batch) -> UpdateResult:
        rollout = self.prepare(batch)
        return policy_gradient_update(self, rollout, lambda rows: rows.advantages if self.hp.baseline else rows.returns)
