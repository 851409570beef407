"""PQN with value decomposition (Gallici et al. 2024, arXiv:2407.04811; Sunehag et al. 2018, arXiv:1706.05296).

The value of a team is the sum of the values that its agents give to their own actions, and it is learnt as PQN learns:
lambda returns on rollouts of many environments, no replay, no target network. The greedy actions of the team are those
of its agents, so acting is PQN's. Rows are agents (n * A + a); all agents of an environment get the same reward.
"""

from __future__ import annotations

from typing import Any

import jax

from rl_training.build_context import BuildContext
from rl_training.hparams.pqn_vdn import SPEC, PQNVDNConfig
from rl_training.jax.algorithms.dqn import of_actions
from rl_training.jax.algorithms.on_policy import State
from rl_training.jax.algorithms.pqn import HYPER, ParallelQ, Rows, pqn_loss, record_of
from rl_training.jax.models.networks import Params
from rl_training.jax.types import Batch, JaxAlgorithm, Metrics

__all__ = ["HYPER", "SPEC", "PQNVDNConfig", "TeamQ", "pqn_vdn"]


class TeamQ(ParallelQ):
    """PQN whose rows are learnt from team by team."""

    name = "pqn_vdn"

    @property
    def learning_units(self) -> int:
        """How many values are learnt at each step: one for each team."""
        return self.ctx.num_envs // self.ctx.num_agents

    def in_teams(self, rows: Any) -> Any:
        """Rows (..., N * A) as (..., N, A)."""
        return rows.reshape(*rows.shape[:-1], -1, self.ctx.num_agents)

    def prepare(self, state: State, batch: Batch) -> tuple[State, Rows]:
        """PQN's rows, side by side for each team (B, A, ...), and the targets of the teams (B,)."""
        state, rows = super().prepare(state, batch)
        agents = self.ctx.num_agents
        obs, actions = jax.tree.map(lambda x: x.reshape(-1, agents, *x.shape[1:]), (rows.obs, rows.actions))
        return state, Rows(obs, actions, rows.targets)

    def targets(self, state: State, batch: Batch, rewards: Any, next_values: Any) -> Any:
        """Targets (T, teams): the reward of the team, and the sum of the greedy values of its agents."""
        ends = {name: self.in_teams(batch[name])[..., 0] for name in ("terminated", "truncated")}
        return super().targets(state, ends, self.in_teams(rewards)[..., 0], self.in_teams(next_values).sum(-1))

    def loss(self, params: Params, rows: Rows) -> tuple[Any, Metrics]:
        obs, actions = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (rows.obs, rows.actions))
        totals = self.in_teams(of_actions(self.q.apply(params, obs), actions)).sum(-1)
        metrics = pqn_loss(totals, rows.targets)
        return metrics["loss"], metrics


def pqn_vdn(ctx: BuildContext, hp: PQNVDNConfig) -> JaxAlgorithm:
    """Q(lambda) of the sum of the agents' values."""
    return record_of(TeamQ(ctx, hp))
