"""IMPALA (Espeholt et al. 2018, arXiv:1802.01561): an actor-critic that learns from rollouts of earlier policies.

Each action is stored with its log-probability under the policy that took it. The learner weights by the ratio to its
own policy, truncated from above (V-trace), and takes A2C's step. Where both policies are the same, this is A2C (with
the default `gae_lambda` of 1).
"""

from __future__ import annotations

from collections import deque
from typing import cast

import numpy as np
import torch

from rl_training.algorithms.a2c import policy_gradient_update
from rl_training.algorithms.on_policy import CURRENT_LOGPROBS, ActorCriticPolicy, OnPolicyAlgorithm
from rl_training.algorithms.rollout import with_edges
from rl_training.build_context import BuildContext
from rl_training.hparams.impala import SPEC, ImpalaConfig
from rl_training.models.transfer import to_device
from rl_training.numerics.returns import VTraceOptions, vtrace
from rl_training.types import Array, Batch, Metrics, StateDict, UpdateResult

__all__ = ["SPEC", "Impala", "ImpalaConfig", "RecordingPolicy", "importance_ratios"]

BEHAVIOUR = "behaviour_logprobs"
"""Extra of every step: log-probabilities (N,) of the actions under the policy that took them."""


def importance_ratios(logprobs: Array, behaviour_logprobs: Array) -> Array:
    """pi(a|x) / mu(a|x) from log-probabilities; finite, also where the acting policy was nearly certain of another."""
    return cast(Array, np.exp(np.minimum(logprobs - behaviour_logprobs, 80.0)))


# -- acting -----------------------------------------------------------------------------------------------------------


class RecordingPolicy(ActorCriticPolicy):
    """Gives the log-probability of every action at the moment of acting, with that moment's weights and statistics."""

    def recorded(self, features: Array, actions: Array, mask: Array | None) -> dict[str, Array]:
        with torch.no_grad():
            params = self.head(to_device(features, self.device))
            allowed = None if mask is None else to_device(mask, self.device)
            logprobs, _ = self.head.logprob_entropy(params, to_device(actions, self.device), allowed)
        return {BEHAVIOUR: logprobs.cpu().numpy()}


# -- learning ---------------------------------------------------------------------------------------------------------


class Impala(OnPolicyAlgorithm):
    """One gradient step per rollout, corrected for the policy that collected it."""

    hp: ImpalaConfig
    policy: RecordingPolicy

    def __init__(self, ctx: BuildContext, hp: ImpalaConfig) -> None:
        super().__init__(ctx, hp)
        self.behaviour: RecordingPolicy = self.build_policy() if hp.policy_lag else self.policy
        """The policy that collects: `policy_lag` updates behind the one that learns."""
        self.earlier: deque[StateDict] = deque()
        """States of the policies between the two, oldest first."""
        self._ratios: Array = np.ones(1)

    def build_policy(self) -> RecordingPolicy:
        return RecordingPolicy(self.ctx, self.hp)

    def acting_policy(self, batch: Batch) -> RecordingPolicy:
        """Values and log-probabilities are those of the learning policy: what acted is in the batch."""
        return self.policy

    def update(self, batch: Batch) -> UpdateResult:
        result = policy_gradient_update(self, self.prepare(batch), lambda rows: rows.advantages)
        result.metrics.update(self.ratio_metrics())
        return result

    def targets(self, batch: Batch, rewards: Array, values: Array, edge_values: Array) -> tuple[Array, Array]:
        """Advantages and targets (T, N) of V-trace."""
        hp = self.hp
        ratios = importance_ratios(batch[CURRENT_LOGPROBS], batch[BEHAVIOUR])
        self._ratios = ratios[batch["valid"]]
        return vtrace(
            rewards,
            values,
            with_edges(batch, values, edge_values),
            batch["terminated"],
            batch["terminated"] | batch["truncated"],
            ratios if hp.correction == "vtrace" else np.ones_like(ratios),
            VTraceOptions(hp.gamma, hp.gae_lambda, hp.rho_clip, hp.c_clip, hp.pg_rho_clip),
            valid=batch["valid"],
        )

    def ratio_metrics(self) -> Metrics:
        """How far the policy that acted is from the one that learns."""
        ratios = self._ratios
        return {
            "ratio_mean": float(ratios.mean()),
            "ratio_max": float(ratios.max()),
            "ratio_clipped": float((ratios > self.hp.rho_clip).mean()),
        }

    def observe(self, batch: Batch) -> None:
        """Move the observation statistics, then hand weights and statistics on to the policy that acts."""
        super().observe(batch)
        if self.hp.policy_lag:
            self.earlier.append(copied(self.policy.state_dict()))
            if len(self.earlier) > self.hp.policy_lag:
                self.behaviour.load_state_dict(self.earlier.popleft())

    def state_dict(self) -> StateDict:
        state = super().state_dict()
        if self.hp.policy_lag:
            waiting = {str(i): earlier for i, earlier in enumerate(self.earlier)}
            state["behaviour"] = {"policy": self.behaviour.state_dict(), "earlier": waiting}
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        super().load_state_dict(state)
        if self.hp.policy_lag:
            self.behaviour.load_state_dict(state["behaviour"]["policy"])
            waiting = state["behaviour"]["earlier"]
            self.earlier = deque(copied(waiting[str(i)]) for i in range(len(waiting)))


def copied(state: StateDict) -> StateDict:
    """A state whose arrays are not views of anything that learns."""
    return {
        key: copied(value) if isinstance(value, dict) else value.copy() if isinstance(value, np.ndarray) else value
        for key, value in state.items()
    }
