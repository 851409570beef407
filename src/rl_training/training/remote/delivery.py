"""What a runner sends back: steps of some environments as arrays, and the state in which each environment was left.

Next observations are not sent: they are the observations of the next row, except where an episode ended, and those
rows are sent by themselves. Deliveries are merged in the order of environments, not of runners.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rl_training.training.collector import CollectStats, Episode
from rl_training.types import Array, Carry, Obs, StateDict, VectorStep

COLUMNS = ("obs", "actions", "rewards", "terminated", "truncated", "is_first", "valid")
Tree = Any
"""One array or a dict of arrays."""


@dataclass(frozen=True)
class EndedEpisode:
    """An episode that ended at step `time` of a delivery."""

    time: int
    episode: Episode


@dataclass(frozen=True)
class Delivery:
    """T steps of the environments `indices` (n of them): columns are (T, n, ...)."""

    indices: tuple[int, ...]
    """Which environments of the run these are, one for each column."""
    columns: dict[str, Tree]
    """obs, actions, rewards, terminated, truncated, is_first, valid."""
    extras: dict[str, Array]
    """What the policy stored with every step."""
    last_obs: Tree
    """True successors (n, ...) of the last row."""
    finals: list[tuple[int, int, Tree]]
    """(time, column, final observation) of every episode that ended."""
    initial_carry: Carry
    episodes: list[EndedEpisode] = field(default_factory=list)
    states: dict[int, StateDict] = field(default_factory=dict)
    """Where each environment was left, by its index in the run."""
    acting_seconds: float = 0.0
    env_seconds: float = 0.0

    @property
    def num_steps(self) -> int:
        return len(self.columns["rewards"])

    def steps(self) -> Iterator[VectorStep]:
        """The steps in order, as a collector in this process would give them to a sink."""
        final_rows: dict[int, list[tuple[int, Tree]]] = {}
        for time, column, obs in self.finals:
            final_rows.setdefault(time, []).append((column, obs))
        obs = self.columns["obs"]
        for t in range(self.num_steps):
            following = at(obs, t + 1) if t + 1 < self.num_steps else self.last_obs
            if t in final_rows:
                following = mapped(np.array, following)
                for column, final in final_rows[t]:
                    set_column(following, column, final)
            values = {name: at(self.columns[name], t) for name in COLUMNS}
            yield VectorStep(**values, next_obs=following, extras={name: x[t] for name, x in self.extras.items()})

    def states_of(self, indices: Sequence[int]) -> dict[int, StateDict]:
        """Where some of the environments were left."""
        return {index: self.states[index] for index in indices}

    def single(self) -> list[Delivery]:
        """A delivery of each environment by itself; what was counted over all of them stays with the first."""
        parts = []
        for column, index in enumerate(self.indices):
            cut = slice(column, column + 1)
            parts.append(
                Delivery(
                    (index,),
                    {name: mapped(lambda x: x[:, cut], self.columns[name]) for name in COLUMNS},  # noqa: B023
                    {name: value[:, cut] for name, value in self.extras.items()},
                    mapped(lambda x: x[cut], self.last_obs),  # noqa: B023
                    [(time, 0, obs) for time, place, obs in self.finals if place == column],
                    {name: value[cut] for name, value in self.initial_carry.items()},
                    [ended for ended in self.episodes if ended.episode.env_index == index],
                    {index: self.states[index]} if index in self.states else {},
                    self.acting_seconds if column == 0 else 0.0,
                    self.env_seconds if column == 0 else 0.0,
                )
            )
        return parts


def merged(parts: Sequence[Delivery]) -> Delivery:
    """One delivery of the columns of all parts, in their order, as new arrays; episodes in the order of their ends."""
    offsets = np.cumsum([0, *(len(part.indices) for part in parts)])
    episodes = [ended for part in parts for ended in part.episodes]
    finals = [
        (time, int(offset) + column, obs)
        for part, offset in zip(parts, offsets, strict=False)
        for time, column, obs in part.finals
    ]
    return Delivery(
        tuple(index for part in parts for index in part.indices),
        {name: joined([part.columns[name] for part in parts], axis=1) for name in COLUMNS},
        {name: np.concatenate([part.extras[name] for part in parts], axis=1) for name in parts[0].extras},
        joined([part.last_obs for part in parts], axis=0),
        sorted(finals, key=lambda final: final[:2]),
        {name: np.concatenate([part.initial_carry[name] for part in parts]) for name in parts[0].initial_carry},
        sorted(episodes, key=lambda ended: (ended.time, ended.episode.env_index)),
        {index: copied(state) for part in parts for index, state in part.states.items()},
        sum(part.acting_seconds for part in parts),
        sum(part.env_seconds for part in parts),
    )


class Recorder:
    """The sink of one environment: keeps its steps until they are sent."""

    def __init__(self) -> None:
        self.carry: Carry = {}
        self.steps: list[VectorStep] = []

    def begin(self, obs: Obs, carry: Carry) -> None:
        """Only the first call of a rollout brings what was remembered before it."""
        if not self.steps:
            self.carry = {name: np.array(value) for name, value in carry.items()}

    def store(self, step: VectorStep) -> None:
        self.steps.append(step)

    def delivery(self, index: int, ended: list[EndedEpisode], state: StateDict, stats: CollectStats) -> Delivery:
        """The steps as arrays (T, 1, ...), and where the environment was left."""
        steps = self.steps
        columns = {name: stacked([getattr(step, name) for step in steps]) for name in COLUMNS}
        extras = {name: stacked([step.extras[name] for step in steps]) for name in steps[0].extras}
        finals = [
            (t, 0, mapped(lambda x: np.array(x[0]), step.next_obs))
            for t, step in enumerate(steps)
            if step.valid[0] and (step.terminated[0] or step.truncated[0])
        ]
        return Delivery(
            (index,),
            columns,
            extras,
            mapped(np.array, steps[-1].next_obs),
            finals,
            self.carry,
            ended,
            {index: state},
            stats.acting_seconds,
            stats.env_seconds,
        )


# -- trees ------------------------------------------------------------------------------------------------------------


def mapped(function: Any, tree: Tree) -> Tree:
    return {key: function(leaf) for key, leaf in tree.items()} if isinstance(tree, dict) else function(tree)


def at(tree: Tree, t: int) -> Tree:
    return mapped(lambda leaf: leaf[t], tree)


def stacked(trees: Sequence[Tree]) -> Tree:
    if isinstance(trees[0], dict):
        return {key: np.stack([tree[key] for tree in trees]) for key in trees[0]}
    return np.stack(trees)


def joined(trees: Sequence[Tree], axis: int) -> Tree:
    if isinstance(trees[0], dict):
        return {key: np.concatenate([tree[key] for tree in trees], axis=axis) for key in trees[0]}
    return np.concatenate(trees, axis=axis)


def set_column(tree: Tree, column: int, value: Tree) -> None:
    if isinstance(tree, dict):
        for key, leaf in tree.items():
            leaf[column] = value[key]
    else:
        tree[column] = value


def copied(state: Any) -> Any:
    """A state whose arrays are its own: what comes through a store of shared objects would be kept there by a view."""
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    return np.array(state) if isinstance(state, np.ndarray) else state


def sent_once(state: StateDict) -> StateDict:
    """A state in which arrays that are views of the same memory, such as an encoder that actor and critic share, are
    the same object: pickle writes that once."""
    known: dict[tuple[Any, ...], Array] = {}

    def visit(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: visit(item) for key, item in value.items()}
        if not isinstance(value, np.ndarray):
            return value
        layout = value.__array_interface__
        place = (layout["data"][0], layout["typestr"], value.shape, value.strides)
        return known.setdefault(place, value)

    found: StateDict = visit(state)
    return found
