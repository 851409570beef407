"""Behavioural cloning: supervised learning of a dataset's actions.

Squared errors for Box actions, cross entropy for Discrete ones. With `dataset.top_fraction` it imitates only the best
episodes, which is the baseline that an offline algorithm has to beat. An actor with memory follows sequences.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor
from torch.nn import functional as F

from rl_training.algorithms.off_policy import OffPolicyAlgorithm, Transitions
from rl_training.algorithms.sac import CategoricalActor, CategoricalPolicy
from rl_training.algorithms.td3 import DeterministicActor, DeterministicPolicy
from rl_training.build_context import BuildContext
from rl_training.hparams.bc import SPEC, BCConfig
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.types import Batch, BoxSpec, DiscreteSpec, Metrics, UpdateResult

__all__ = ["BC", "SPEC", "BCConfig"]


def cloning_loss(actions: Tensor, data: Tensor) -> Tensor:
    """Squared errors of actions (B, A) in -1..1, averaged over batch and dimensions."""
    return F.mse_loss(actions, data.reshape(actions.shape))


class BC(OffPolicyAlgorithm):
    """An actor alone."""

    def __init__(self, ctx: BuildContext, hp: BCConfig) -> None:
        super().__init__(ctx, cast(OffPolicyHparams, hp))
        rng, space = ctx.streams("init"), ctx.action_space
        if isinstance(space, DiscreteSpec):
            actor = CategoricalActor(ctx.observation_space, space, ctx.network, rng)
            self.learner("actor", actor)
            self.act_with(CategoricalPolicy(actor, ctx, self.normalizer))
        else:
            cloned = DeterministicActor(ctx.observation_space, cast(BoxSpec, space), ctx.network, rng)
            self.learner("actor", cloned)
            self.act_with(DeterministicPolicy(cloned, ctx, self.normalizer, exploration_noise=0.0))

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the actor."""
        self.updates += 1
        rows, metrics = self.prepare(batch), cast(Metrics, {})
        loss = self.loss(rows)
        metrics["actor_loss"] = loss.detach()
        metrics["actor_grad_norm"] = self.step("actor", loss, metrics)
        return UpdateResult(metrics)

    def loss(self, rows: Transitions) -> Tensor:
        """How far the actor is from the dataset's actions."""
        outputs = self.learners["actor"].network(rows.obs)
        if isinstance(self.ctx.action_space, DiscreteSpec):
            return F.nll_loss(outputs, rows.actions.long())  # the actor gives log-probabilities
        return cloning_loss(outputs, rows.actions)
