"""VDN (Sunehag et al. 2018, arXiv:1706.05296) and QMIX (Rashid et al. 2018, arXiv:1803.11485): one value for a team.

Every agent has a value of each of its actions; a mixer makes the value of the team of those of the actions taken, and
that value is learnt, by Q-learning on replay. The mixer grows with each of its inputs, so the greedy actions of the
team are the greedy actions of its agents: acting needs neither mixer nor state.

Top to bottom: the mathematics, the policy, the algorithm. Rows come agent by agent (b * A + a); agents that are gone
count as 0 in the mixture, and agents that a time limit cut off count with their last observations.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from rl_training.algorithms.dqn import EpsilonGreedyPolicy, greedy, of_actions
from rl_training.algorithms.multi_agent.batches import team_columns
from rl_training.algorithms.off_policy import OffPolicyAlgorithm, Transitions, td_targets
from rl_training.algorithms.policies import TorchParts
from rl_training.build_context import BuildContext
from rl_training.export.graph import PolicyGraph
from rl_training.hparams.qmix import QMIXConfig
from rl_training.hparams.vdn import VDNConfig
from rl_training.models.action_values import ActionValues, QShape
from rl_training.models.mixers import MonotonicMixer, SumMixer
from rl_training.models.networks import load_module_state, module_state
from rl_training.models.observed import Seen, rows_of
from rl_training.types import CRITIC_STATE, Batch, ConfigError, DictSpec, DiscreteSpec, Metrics, StateDict, UpdateResult

__all__ = ["ValueMixing", "mixing_loss"]


class TeamRows(NamedTuple):
    """Who of each team was there, (B, A), and what the team got out of it, (B,)."""

    there: Tensor
    """1 for agents that act in this step."""
    goes_on: Tensor
    """1 for agents whose values count after it: those that are there, and those that were only cut off by it."""
    rewards: Tensor
    terminated: Tensor
    """1 where nobody of the team goes on, and nobody was only cut off."""
    weights: Tensor
    """1 where at least one agent acted: other steps teach nothing."""


def mixing_loss(totals: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """(half the mean squared error, the mean absolute error) of teams' values (B,), over those whose weight is 1."""
    errors = (totals - targets) * weights
    count = weights.sum().clamp(min=1.0)
    return 0.5 * errors.square().sum() / count, errors.detach().abs().sum() / count


class AgentValuesPolicy(EpsilonGreedyPolicy):
    """Acts by the values of each agent's own actions."""

    def graph(self) -> PolicyGraph | None:
        return self.graph_with("values")

    def torch_parts(self) -> TorchParts | None:
        return None


class MixedValues(nn.Module):
    """The agents' values and their mixer: what is trained."""

    def __init__(self, q: ActionValues, mixer: nn.Module) -> None:
        super().__init__()
        self.q, self.mixer = q, mixer


class ValueMixing(OffPolicyAlgorithm):
    """Q-learning of a team's value; `hp` says how it is mixed."""

    hp: VDNConfig
    policy_learners = ("values",)

    def __init__(self, ctx: BuildContext, hp: VDNConfig) -> None:
        super().__init__(ctx, hp)
        rng, space = ctx.streams("init"), cast(DiscreteSpec, ctx.action_space)
        shape = QShape(space.n, dueling=hp.dueling)
        self.agents = ctx.num_agents
        self.q = ActionValues(ctx.observation_space, shape, ctx.network.critic, rng, visible=ctx.actor_space)
        self.mixer: nn.Module = SumMixer()
        if isinstance(hp, QMIXConfig):
            leaves = ctx.observation_space.spaces if isinstance(ctx.observation_space, DictSpec) else {}
            if CRITIC_STATE not in leaves:
                raise ConfigError("qmix mixes by the state of all agents: set env.agents.state to auto, env or concat")
            size = leaves[CRITIC_STATE].shape[0]
            self.mixer = MonotonicMixer(self.agents, size, hp.mixing_dim, hp.hypernet_dim, rng)
        self.learner("values", MixedValues(self.q, self.mixer))
        self.target("values")
        self.act_with(AgentValuesPolicy(self), store_carry=hp.stored_state)

    def expected(self, numbers: Tensor) -> Tensor:
        """Values (B, actions) from the outputs of the network (B, actions, 1)."""
        return numbers.squeeze(2)

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the agents' values and the mixer; the targets follow at every `target_every_updates`-th call."""
        self.updates += 1
        rows = self.prepare(batch)
        team = self.team(batch, rows)
        with torch.no_grad():
            targets = self.targets_of(rows, team)
        totals = self.total(self.q, self.mixer, rows, team)
        loss, error = mixing_loss(totals, targets, team.weights)
        metrics: Metrics = {"loss": loss.detach(), "value_mean": totals.detach().mean(), "td_error": error}
        metrics["grad_norm"] = self.step("values", loss, metrics)
        if self.updates % self.hp.target_every_updates == 0:
            self.targets["values"].follow(self.hp.tau)
        metrics["epsilon"] = self.policy.epsilon()
        return UpdateResult(metrics)

    def team(self, batch: Batch, rows: Transitions) -> TeamRows:
        """The columns of the batch that are about whole teams."""
        columns = team_columns(batch, self.hp.burn_in if self.remembers else None)
        there, there_next, truncated = (self.tensor(columns[name]).view(-1, self.agents) for name in columns)
        goes_on = there_next | (truncated & there)
        return TeamRows(
            there.float(),
            goes_on.float(),
            rows.rewards.view(-1, self.agents)[:, 0],
            (~goes_on.any(1)).float(),
            there.any(1).float(),
        )

    def total(self, q: ActionValues, mixer: nn.Module, rows: Transitions, team: TeamRows) -> Tensor:
        """Values of teams (B,) for the actions taken."""
        chosen = of_actions(q(rows.obs), rows.actions).view(-1, self.agents)
        return cast(Tensor, mixer(chosen * team.there, self.state(rows.obs)))

    def targets_of(self, rows: Transitions, team: TeamRows) -> Tensor:
        """Bellman targets of the teams' values (B,)."""
        lagging = cast(MixedValues, self.targets["values"].network)
        numbers = lagging.q(rows.next_obs)
        chooser = self.q(rows.next_obs) if self.hp.double else numbers
        best = of_actions(numbers, greedy(self.expected(chooser), rows.next_obs)).view(-1, self.agents)
        following = lagging.mixer(best * team.goes_on, self.state(rows.next_obs))
        discounts = torch.full_like(following, self.hp.gamma)
        return td_targets(team.rewards, discounts, team.terminated, following)

    def state(self, obs: Seen) -> Tensor | None:
        """The state (B, S) that the mixer sees; None where it sees none."""
        seen = rows_of(obs)
        if not isinstance(seen, dict) or CRITIC_STATE not in seen:
            return None
        return seen[CRITIC_STATE].view(-1, self.agents, seen[CRITIC_STATE].shape[1])[:, 0].float()

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "mixer": module_state(self.mixer)}

    def load_state_dict(self, state: StateDict, /) -> None:
        super().load_state_dict(state)
        load_module_state(self.mixer, state["mixer"])
