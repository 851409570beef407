"""A growing leaf of a state: rows in ring buffers, of which a checkpoint writes only the new ones.

Row g of the log (counted from the very first one) is at index g % capacity of every column and never changes once
written; rows [start, stop) are live. In memory this is a view of the buffer's arrays; `segments.py` offers the same
interface backed by files. Not here: files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rl_training.types import Array, CheckpointError


class LogIdentity:
    """Identity of one growing buffer. Two RowLogs with the same identity are snapshots of it, so segment files written
    for one are valid for the other. It exists only in memory: a log with a new identity is written from scratch."""


class RowSource(Protocol):
    """What `load_state_dict` receives for a log: rows [start, stop) to copy into the part's own rings."""

    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    def copy_into(self, columns: Mapping[str, Array]) -> LogIdentity: ...
    def arrays(self) -> dict[str, Array]: ...


@dataclass(frozen=True, eq=False)
class RowLog:
    """A view of the rings in memory: write or copy it before the next row is added."""

    columns: Mapping[str, Array]
    """(capacity, ...) each, C order."""
    start: int
    stop: int
    identity: LogIdentity = field(default_factory=LogIdentity)

    def __post_init__(self) -> None:
        capacities = {len(column) for column in self.columns.values()}
        if len(capacities) != 1 or not 0 <= self.stop - self.start <= capacities.pop() or self.start < 0:
            lengths = {name: len(column) for name, column in self.columns.items()}
            raise CheckpointError(f"rows {self.start} to {self.stop} do not fit into rings of {lengths} rows")

    @property
    def capacity(self) -> int:
        return len(next(iter(self.columns.values())))

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """[start, stop) split where the rings wrap around, so that each piece is one slice."""
        while start < stop:
            end = min(stop, (start // self.capacity + 1) * self.capacity)
            yield start, end
            start = end

    def slices(self, start: int, stop: int) -> dict[str, Array]:
        """Views of the columns for one piece, which must not wrap around."""
        first = start % self.capacity
        return {name: column[first : first + stop - start] for name, column in self.columns.items()}

    def copy_into(self, columns: Mapping[str, Array]) -> LogIdentity:
        """Copy the rows to their places in `columns`; returns a new identity, because the copy grows on its own."""
        for start, stop in self.pieces(self.start, self.stop):
            place_rows(self.slices(start, stop), columns, start)
        return LogIdentity()

    def arrays(self) -> dict[str, Array]:
        """Copies of all rows, oldest first."""
        order = np.arange(self.start, self.stop) % self.capacity
        return {name: column.take(order, axis=0) for name, column in self.columns.items()}


def place_rows(rows: Mapping[str, Array], columns: Mapping[str, Array], start: int) -> None:
    """Copy rows `start`, start + 1, ... into rings; CheckpointError, before anything is copied, if they do not fit."""
    if rows.keys() != columns.keys():
        raise CheckpointError(f"the saved rows have {sorted(rows)}, this run needs {sorted(columns)}")
    for name, column in columns.items():
        if rows[name].dtype != column.dtype or rows[name].shape[1:] != column.shape[1:]:
            raise CheckpointError(
                f"saved '{name}' has rows {rows[name].dtype}{list(rows[name].shape[1:])}, this run needs "
                f"{column.dtype}{list(column.shape[1:])}: the checkpoint belongs to another environment or buffer"
            )
    for name, column in columns.items():
        first = start % len(column)
        head = min(len(rows[name]), len(column) - first)
        column[first : first + head] = rows[name][:head]
        column[: len(rows[name]) - head] = rows[name][head:]
