"""State that is spread over ranks, as one checkpoint holds it: of every shard, whatever the number of ranks.

Rank 0 saves and restores. The state of shards on other ranks comes to it when it is asked for; of a replay buffer only
the rows that no segment on disk holds yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rl_training.checkpointing.row_log import LogIdentity, RowLog, place_rows
from rl_training.checkpointing.segments import SavedRows
from rl_training.distributed.ranks import RankShards
from rl_training.types import Array, CheckpointError, FollowsEpisodes, StateDict

Order = Callable[[str, Any], None]
"""Tells the other ranks what to do next, and with what."""
Place = tuple[int, tuple[str, ...]]
"""A shard, and where in its state something is."""


@dataclass(frozen=True)
class SentLog:
    """Rows of a replay buffer on another rank, as rank 0 is told of them."""

    start: int
    stop: int
    capacity: int
    formats: Mapping[str, tuple[str, tuple[int, ...]]]
    """Dtype and shape of a row of every column."""


@dataclass(frozen=True)
class SentRows:
    """Saved rows on their way to the rank that has the replay buffer; see `row_log.RowSource`."""

    start: int
    stop: int
    rows: Mapping[str, Array]

    def copy_into(self, columns: Mapping[str, Array]) -> LogIdentity:
        place_rows(self.rows, columns, self.start)
        return LogIdentity()

    def arrays(self) -> dict[str, Array]:
        return dict(self.rows)


@dataclass(frozen=True, eq=False)
class RemoteRowLog(RowLog):
    """A log whose rows are on another rank and are fetched when they are written; its columns are never filled."""

    fetch: Callable[[int, int], dict[str, Array]] = field(kw_only=True)

    def slices(self, start: int, stop: int) -> dict[str, Array]:
        return self.fetch(start, stop)

    def arrays(self) -> dict[str, Array]:
        pieces = [self.fetch(*piece) for piece in self.pieces(self.start, self.stop)]
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]} if pieces else {}


class ShardedPart:
    """One part of the trainer in all shards, such as their collectors; rank 0 sees the state of all of them.

    Ranks other than 0 call `send_state`, `take_state`, `send_rows` and `drop`, at the order of rank 0.
    """

    def __init__(self, name: str, shards: RankShards, own: Sequence[Any], order: Order) -> None:
        self.name, self.shards, self.own, self.order = name, shards, own, order
        self.ranks = shards.ranks
        self.logs: dict[Place, RowLog] = {}
        """Logs of this rank that rank 0 was told of."""
        self.remote: dict[Place, tuple[LogIdentity, dict[str, Array]]] = {}
        """Identity and columns (never filled) of the logs of other ranks."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of the replay buffers of all shards."""
        return int(sum(getattr(part, "memory_bytes", 0) for part in self.own)) * self.shards.count // len(self.own)

    # -- saving -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> StateDict:
        states = {number: part.state_dict() for number, part in zip(self.shards.own, self.own, strict=True)}
        if self.ranks.count > 1:
            self.order("save", self.name)
            nothing: dict[int, StateDict] = {}
            for others in self.ranks.collect(nothing)[1:]:
                states |= {number: self._with_logs(number, state) for number, state in others.items()}
        return {f"shard_{number}": states[number] for number in range(self.shards.count)}

    def send_state(self) -> None:
        """The state of the shards of this rank, to rank 0."""
        self.logs.clear()
        states = zip(self.shards.own, self.own, strict=True)
        self.ranks.collect({number: self._without_logs(number, part.state_dict()) for number, part in states})

    def _without_logs(self, shard: int, state: StateDict) -> StateDict:
        def told(log: Any, path: tuple[str, ...]) -> Any:
            if not isinstance(log, RowLog):
                return log
            self.logs[shard, path] = log
            formats = {name: (column.dtype.str, column.shape[1:]) for name, column in log.columns.items()}
            return SentLog(log.start, log.stop, log.capacity, formats)

        return dict(mapped(state, told))

    def _with_logs(self, shard: int, state: StateDict) -> StateDict:
        def found(log: Any, path: tuple[str, ...]) -> Any:
            if not isinstance(log, SentLog):
                return log
            place = (shard, path)
            if place not in self.remote:
                columns = {
                    name: np.empty((log.capacity, *shape), dtype) for name, (dtype, shape) in log.formats.items()
                }
                self.remote[place] = (LogIdentity(), columns)
            identity, columns = self.remote[place]
            return RemoteRowLog(columns, log.start, log.stop, identity, fetch=lambda *rows: self._fetch(place, *rows))

        return dict(mapped(state, found))

    def _fetch(self, place: Place, start: int, stop: int) -> dict[str, Array]:
        self.order("rows", (self.name, place, start, stop))
        rows: dict[str, Array] = self.ranks.receive(self.shards.owner(place[0]))
        return rows

    def send_rows(self, place: Place, start: int, stop: int) -> None:
        """Rows of a log, to rank 0, where this rank has them."""
        if place in self.logs:
            self.ranks.send(self.logs[place].slices(start, stop), to=0)

    # -- restoring ----------------------------------------------------------------------------------------------------

    def load_state_dict(self, state: StateDict, /) -> None:
        names = [f"shard_{number}" for number in range(self.shards.count)]
        if sorted(state) != sorted(names):
            raise CheckpointError(
                f"it was saved with {len(state)} shards, this run has training.shards {self.shards.count}"
            )
        if self.ranks.count > 1:
            self.order("load", self.name)
            self.remote.clear()
            for number in (number for number in range(self.shards.count) if number not in self.shards.own):
                self.ranks.send(mapped(state[names[number]], sent), to=self.shards.owner(number))
        self.ranks.attempt(lambda: self._load([state[names[number]] for number in self.shards.own]))

    def take_state(self) -> None:
        """Restore the shards of this rank from what rank 0 sends."""
        states = [self.ranks.receive(0) for _ in self.own]
        self.ranks.attempt(lambda: self._load(states))

    def _load(self, states: Sequence[StateDict]) -> None:
        for part, state in zip(self.own, states, strict=True):
            part.load_state_dict(state)

    def drop_open_episodes(self) -> None:
        """End the episodes in progress on all ranks, where this part follows them."""
        if self.ranks.count > 1:
            self.order("drop", self.name)
        self.drop()

    def drop(self) -> None:
        for part in self.own:
            if isinstance(part, FollowsEpisodes):
                part.drop_open_episodes()


def mapped(tree: Any, change: Callable[[Any, tuple[str, ...]], Any], path: tuple[str, ...] = ()) -> Any:
    """A state with every leaf changed."""
    if isinstance(tree, dict):
        return {key: mapped(value, change, (*path, str(key))) for key, value in tree.items()}
    return change(tree, path)


def sent(leaf: Any, path: tuple[str, ...]) -> Any:
    """Rows of a checkpoint as arrays, everything else as it is."""
    return SentRows(leaf.start, leaf.stop, leaf.arrays()) if isinstance(leaf, SavedRows | RowLog) else leaf
