"""Conservative Q-learning (Kumar et al. 2020, arXiv:2006.04779), CQL(H), for continuous and for discrete actions.

Continuous actions: SAC without entropy in its targets, whose critics are also pushed down at actions of the policy and
at random ones, and up at the dataset's (`conservative_penalty`). The actions are drawn without gradient; that of the
penalty reaches the critics through the logsumexp. Discrete actions: double DQN with the same penalty over all actions.

`calibrate` keeps the penalty from pushing values below what the dataset's episodes returned (Nakamoto et al. 2023,
arXiv:2303.05479), which is what makes the first steps in an environment safe.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.dqn import DQN, QStep, dqn_loss
from rl_training.algorithms.off_policy import CriticStep, Transitions
from rl_training.algorithms.offline.common import refuse_memory
from rl_training.algorithms.sac import SAC, GaussianActor
from rl_training.build_context import BuildContext
from rl_training.hparams.cql import SPEC, CQLConfig, dqn_config
from rl_training.hparams.sac import SACConfig
from rl_training.models.critics import QCritics
from rl_training.models.heads import MASKED_LOGIT, ActionParams
from rl_training.models.observed import Encoded, Seen, action_mask, features_of, rows_of, taken
from rl_training.types import Batch, BoxSpec, DiscreteSpec, UpdateResult

__all__ = ["CQL", "SPEC", "CQLConfig", "DiscreteCQL", "conservative_penalty", "discrete_penalty"]

LOG_HALF = math.log(0.5)
"""Log-density of a uniform action in -1..1, per dimension."""
PIECE = 512
"""Rows that pass through the critics together on a CPU."""


def conservative_penalty(values: Tensor, logprobs: Tensor, chosen: Tensor) -> Tensor:
    """logsumexp(Q(s, a_i) - log q(a_i)) - Q(s, a), averaged over the batch and summed over E critics.

    `values` (E, B, M) are those of M actions per state, drawn with log-densities `logprobs` (B, M); `chosen` (E, B) are
    those of the dataset's actions.
    """
    return (torch.logsumexp(values - logprobs, dim=2) - chosen).mean(1).sum()


def discrete_penalty(values: Tensor, chosen: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean of logsumexp Q(s, .) - Q(s, a) over the batch; `values` (B, A), those of the dataset's actions (B,)."""
    allowed = values if mask is None else values.masked_fill(mask == 0, MASKED_LOGIT)
    return (torch.logsumexp(allowed, dim=1) - chosen).mean()


def calibrated(values: Tensor, floors: Tensor, count: int) -> Tensor:
    """Values (E, B, M) of which those behind the first `count`, of the policy's actions, are raised to the floors (B,);
    where a floor is higher, no gradient reaches the critics."""
    uniform, own = values[:, :, :count], values[:, :, count:]
    return torch.cat([uniform, torch.maximum(own, floors[None, :, None])], dim=2)


def picked(obs: Seen, rows: Tensor) -> Seen:
    """Rows by their index, for networks without memory; of encoded images only the features."""
    if isinstance(obs, Encoded):
        return Encoded(obs.by, obs.raw, taken(rows_of(obs), rows))
    return taken(rows_of(obs), rows)


def values_of(critics: QCritics, obs: Seen, actions: Tensor) -> Tensor:
    """Values (E, B, M) of M actions (B, M, A) per state.

    On a CPU a few states at a time: what the layers give then stays in its cache, which saves a fifth of the time.
    """
    batch, count, _ = actions.shape
    states = max(PIECE // count, 1) if actions.device.type == "cpu" else batch
    pieces = torch.arange(batch, device=actions.device).split(states)
    values = [critics(picked(obs, rows.repeat_interleave(count)), actions[rows].flatten(0, 1)) for rows in pieces]
    values_of_all: Tensor = torch.cat(values, 1).unflatten(1, (batch, count))
    return values_of_all


def cql(ctx: BuildContext, hp: CQLConfig) -> CQL | DiscreteCQL:
    """The algorithm for the actions that the context has."""
    return DiscreteCQL(ctx, hp) if isinstance(ctx.action_space, DiscreteSpec) else CQL(ctx, hp)


class CQL(SAC):
    """SAC with other targets and a penalty of the critics."""

    def __init__(self, ctx: BuildContext, hp: CQLConfig) -> None:
        super().__init__(ctx, cast(SACConfig, hp))
        refuse_memory(self, "cql")
        self.options = hp
        online = ctx.progress.axis == "env_steps"
        self.calibrates = hp.calibrate == "always" or (hp.calibrate == "online" and online)
        self.size = math.prod(cast(BoxSpec, ctx.action_space).shape)
        self.penalty: Tensor | float = 0.0
        """Value of the penalty at the latest update, for the log."""

    def rate(self, name: str) -> float:
        """Current step size: the critics have their own."""
        return super().rate(name) if name == "critics" else self.scheduled("actor_learning_rate")

    def targets_of(self, rows: Transitions, alpha: Tensor | float) -> Tensor:
        """Bellman targets of the actions taken, (B,): the value of a sample of the policy, without its entropy."""
        return super().targets_of(rows, 0.0)

    def update(self, batch: Batch) -> UpdateResult:
        result = super().update(batch)
        result.metrics["penalty"] = self.penalty
        return result

    def critics_objective(self, rows: Transitions, alpha: Tensor | float) -> CriticStep:
        """Squared errors towards the Bellman targets, and the conservative penalty."""
        if self.options.weight == 0.0:
            return super().critics_objective(rows, alpha)
        with torch.no_grad():
            targets = self.targets_of(rows, alpha)
            actions, logprobs = self.compared(rows)
        actions = torch.cat([actions, rows.actions.reshape(len(actions), 1, -1)], 1)  # the dataset's action last
        obs = rows.obs if self.critics.shared is None else self.critics.shared.see(rows.obs)
        values = values_of(self.critics, obs, actions)
        values, chosen = values[:, :, :-1], values[:, :, -1]
        if self.calibrates and rows.floors is not None:
            values = calibrated(values, rows.floors, self.options.num_sampled)
        penalty = conservative_penalty(values, logprobs, chosen)
        self.penalty = penalty.detach()
        loss = self.loss_of_critics(chosen, targets, rows.weights) + self.options.weight * penalty
        return CriticStep(loss, chosen.detach().mean(), (chosen - targets).detach())

    def compared(self, rows: Transitions) -> tuple[Tensor, Tensor]:
        """Actions (B, M, A) whose values at the states are pushed down, and their log-densities (B, M): uniform ones,
        and samples of the policy at the states and at the next ones."""
        batch, count, size = len(rows.rewards), self.options.num_sampled, self.size
        drawn = self.tensor(self.rng.uniform(-1.0, 1.0, (batch, count, size)).astype(np.float32))
        here, log_here = self.sampled(self.critics.shown(rows.obs), count)
        there, log_there = self.sampled(self.critics.shown(rows.next_obs), count)
        log_drawn = torch.full((batch, count), size * LOG_HALF, device=drawn.device)
        return torch.cat([drawn, here, there], 1), torch.cat([log_drawn, log_here, log_there], 1)

    def sampled(self, obs: Seen, count: int) -> tuple[Tensor, Tensor]:
        """Actions (B, count, A) of the policy, and their log-densities (B, count)."""
        actor = cast(GaussianActor, self.actor)
        params = actor.head(features_of(actor.backbone, obs))
        assert params.log_std is not None
        mean, log_std = (part.repeat_interleave(count, 0) for part in (params.mean, params.log_std))
        actions, logprobs = actor.head.rsample(ActionParams(mean, log_std), self.noise(*mean.shape))
        return actions.unflatten(0, (-1, count)), logprobs.unflatten(0, (-1, count))


class DiscreteCQL(DQN):
    """Double DQN with a penalty, and a target that follows at every update."""

    def __init__(self, ctx: BuildContext, hp: CQLConfig) -> None:
        super().__init__(ctx, dqn_config(hp))
        refuse_memory(self, "cql")
        self.options = hp
        self.penalty: Tensor | float = 0.0
        """Value of the penalty at the latest update, for the log."""

    def update(self, batch: Batch) -> UpdateResult:
        result = super().update(batch)
        result.metrics["penalty"] = self.penalty
        return result

    def objective(self, rows: Transitions) -> QStep:
        """Huber loss of the values of the actions taken, and the conservative penalty."""
        with torch.no_grad():
            targets = self.targets_of(rows).squeeze(1)
        values = self.expected(self.q(rows.obs))  # (B, A)
        chosen = values.gather(1, rows.actions.long().unsqueeze(1)).squeeze(1)
        losses, errors = dqn_loss(chosen, targets)
        penalty = discrete_penalty(values, chosen, action_mask(rows.obs))
        self.penalty = penalty.detach()
        loss = losses.mean() + self.options.weight * penalty
        return QStep(loss, chosen.detach().mean(), errors.mean(), errors)
