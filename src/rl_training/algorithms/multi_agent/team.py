"""The team that plays an environment of several agents: one policy and one algorithm for all, made of single ones.

`TeamPolicy` acts for everybody, `TeamAlgorithm` lets each of its members learn from the rows of its own agents. To
collectors, buffers, evaluation and checkpoints a team is an ordinary algorithm in an ordinary environment; to a member
its agents are rows of a vector environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from rl_training.algorithms.multi_agent.batches import (
    RowView,
    all_transition_rows,
    extra_name,
    own_carry,
    rollout_rows,
    sequence_rows,
    team_sequence_rows,
    transition_rows,
)
from rl_training.hparams.off_policy import ReplaySchedule, SequenceOptions
from rl_training.numerics.agents import FIRST, joined_actions, unfold
from rl_training.types import (
    ActResult,
    Algorithm,
    Array,
    Batch,
    Carry,
    FollowsEpisodes,
    JointSpec,
    Metrics,
    Obs,
    Policy,
    StateDict,
    UpdateResult,
)


class Inspected(Protocol):
    """What the NaN guard and debug mode look into; see `training/contract.py`."""

    def watched(self) -> Any: ...
    def named_modules(self) -> Any: ...
    def named_optimizers(self) -> Any: ...
    def reference_gradients(self) -> AbstractContextManager[None]: ...


@dataclass(frozen=True)
class Member:
    """One policy of a team: its algorithm, and the rows that it acts on and learns from."""

    algorithm: Algorithm
    view: RowView
    inspected: Inspected
    whole: bool = False
    """Whether it learns from all of its agents at once: rows of agents that are gone stay in their places."""
    burn_in: int = 0
    """Steps at the beginning of replayed sequences that only warm up its memory."""

    def acts_in(self, rows: Batch) -> bool:
        """Whether any of its agents is there in what it is to learn from: other rows teach nothing."""
        there = rows.get("there", rows.get("valid"))
        if there is None:  # transitions of agents that are gone are left out
            return len(rows["actions"]) > 0
        in_sequences = "next_obs" in rows and "is_first" in rows
        return bool((there[:, self.burn_in :] if in_sequences else there).any())


@dataclass(frozen=True)
class TeamReplay:
    """How a team learns from replay."""

    schedule: ReplaySchedule
    warmup: Mapping[str, Policy]
    updates_per_learn: int
    sequences: Mapping[str, SequenceOptions | None]


class TeamPolicy:
    """Acts for all agents of N environments, each policy for its own."""

    def __init__(self, joint: JointSpec, members: Mapping[str, Policy], views: Mapping[str, RowView]) -> None:
        self.joint = joint
        self.members = dict(members)
        self.views = dict(views)

    def initial_carry(self, num_envs: int) -> Carry:
        return {
            f"{name}/{part}": unfold(value, self.views[name].count)
            for name, policy in self.members.items()
            for part, value in policy.initial_carry(num_envs * self.views[name].count).items()
        }

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        seen = cast(dict[str, Array], obs)
        actions, env_actions, after, extras = {}, {}, {}, {}
        for name, policy in self.members.items():
            view = self.views[name]
            begins = view.mark(FIRST, seen, 1).astype(bool) | view.repeated(is_first, 1)
            own = own_carry(name, carry)
            result = policy.act(view.obs(seen, 1), own, begins, rng, deterministic=deterministic)
            actions[name], env_actions[name] = result.actions, result.env_actions
            after.update({f"{name}/{part}": unfold(value, view.count) for part, value in result.carry.items()})
            extras.update({extra_name(name, part): unfold(value, view.count) for part, value in result.extras.items()})
        return ActResult(joined_actions(actions, self.joint), joined_actions(env_actions, self.joint), after, extras)

    def state_dict(self) -> StateDict:
        return {name: policy.state_dict() for name, policy in self.members.items()}

    def load_state_dict(self, state: StateDict, /) -> None:
        for name, policy in self.members.items():
            policy.load_state_dict(state[name])


class TeamAlgorithm:
    """Learns with every member from the rows of its agents; one whose agents are gone in all of them waits. Metrics of
    several policies are named `policy/metric`."""

    def __init__(self, joint: JointSpec, members: Mapping[str, Member], replay: TeamReplay | None = None) -> None:
        self.joint = joint
        self.members = dict(members)
        self.replay = replay
        self.views = {name: member.view for name, member in members.items()}
        self.policy = TeamPolicy(joint, {name: m.algorithm.policy for name, m in members.items()}, self.views)

    # -- what a trainer asks of an algorithm that learns from replay --------------------------------------------------

    @property
    def schedule(self) -> ReplaySchedule | None:
        return None if self.replay is None else self.replay.schedule

    @property
    def warmup(self) -> Policy:
        return self.policy if self.replay is None else TeamPolicy(self.joint, self.replay.warmup, self.views)

    @property
    def updates_per_learn(self) -> int:
        return 1 if self.replay is None else self.replay.updates_per_learn

    @property
    def sequences(self) -> SequenceOptions | None:
        """Sequences that the buffer gives, with what each policy remembers at their beginnings."""
        found = {} if self.replay is None else {k: v for k, v in self.replay.sequences.items() if v is not None}
        if not found:
            return None
        carry = {
            f"{name}/{part}": ((self.views[name].count, *shape), dtype)
            for name, options in found.items()
            for part, (shape, dtype) in options.carry.items()
        }
        return SequenceOptions(next(iter(found.values())).length, carry)

    # -- learning -----------------------------------------------------------------------------------------------------

    def update(self, batch: Batch) -> UpdateResult:
        results = {}
        for name, member in self.members.items():
            rows = self.rows(name, batch)
            if member.acts_in(rows):
                results[name] = member.algorithm.update(rows)
        if len(self.members) == 1:
            return UpdateResult(next(iter(results.values())).metrics)
        metrics: Metrics = {
            f"{name}/{metric}": value for name, result in results.items() for metric, value in result.metrics.items()
        }
        losses = [result.metrics["loss"] for result in results.values() if "loss" in result.metrics]
        return UpdateResult({**metrics, "loss": sum(losses) / len(losses)} if losses else metrics)

    def rows(self, name: str, batch: Batch) -> Batch:
        """What member `name` learns from, out of a rollout, of transitions or of sequences of all agents."""
        member = self.members[name]
        if "next_obs" not in batch:
            return rollout_rows(member.view, batch)
        if "is_first" in batch:
            return (team_sequence_rows if member.whole else sequence_rows)(member.view, batch)
        return (all_transition_rows if member.whole else transition_rows)(member.view, batch)

    def observe(self, batch: Batch) -> None:
        for member in self.members.values():
            member.algorithm.observe(rollout_rows(member.view, batch))

    def drop_open_episodes(self) -> None:
        for member in self.members.values():
            if isinstance(member.algorithm, FollowsEpisodes):
                member.algorithm.drop_open_episodes()

    # -- inspection and state -----------------------------------------------------------------------------------------

    def watched(self) -> Iterator[Any]:
        for member in self.members.values():
            yield from member.inspected.watched()

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        yield from self._named(lambda part: part.named_modules())

    def named_optimizers(self) -> Iterator[tuple[str, Any]]:
        yield from self._named(lambda part: part.named_optimizers())

    def _named(self, parts: Callable[[Inspected], Any]) -> Iterator[tuple[str, Any]]:
        for name, member in self.members.items():
            prefix = f"{name}." if len(self.members) > 1 else ""
            yield from ((prefix + inner, part) for inner, part in parts(member.inspected))

    def reference_gradients(self) -> AbstractContextManager[None]:
        stack = ExitStack()
        for member in self.members.values():
            stack.enter_context(member.inspected.reference_gradients())
        return cast(AbstractContextManager[None], stack)

    def state_dict(self) -> StateDict:
        return {name: member.algorithm.state_dict() for name, member in self.members.items()}

    def load_state_dict(self, state: StateDict, /) -> None:
        for name, member in self.members.items():
            member.algorithm.load_state_dict(state[name])
