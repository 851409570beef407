"""A leaf of a state that grows: rows in rings, of which a checkpoint only has to write those that are new.

Row g of the log (counted from the very first one) lies at index g % capacity of every column and never changes once it
is there; rows [start, stop) are alive. In memory this is a view of somebody's arrays; `segments` gives back the same
thing from files. Not here: files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rl_training.types import Array, CheckpointError


class Lineage:
    """Whose rows these are. Two logs of one lineage hold the same rows where they overlap, so files of one serve the
    other; it lives only in memory, and whoever cannot show the right one writes everything again."""


class Rows(Protocol):
    """What a state's owner gets back: rows [start, stop) to copy into its own rings."""

    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    def copy_into(self, columns: Mapping[str, Array]) -> Lineage: ...
    def arrays(self) -> dict[str, Array]: ...


@dataclass(frozen=True, eq=False)
class RowLog:
    """The rings themselves: a view, so write it or copy it before the next row is added."""

    columns: Mapping[str, Array]
    """(capacity, ...) each, C order."""
    start: int
    stop: int
    lineage: Lineage = field(default_factory=Lineage)

    def __post_init__(self) -> None:
        capacities = {len(column) for column in self.columns.values()}
        if len(capacities) != 1 or not 0 <= self.stop - self.start <= capacities.pop() or self.start < 0:
            lengths = {name: len(column) for name, column in self.columns.items()}
            raise CheckpointError(f"rows {self.start} to {self.stop} do not fit into rings of {lengths} rows")

    @property
    def capacity(self) -> int:
        return len(next(iter(self.columns.values())))

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """[start, stop) cut where the rings begin anew, so that each piece is one slice."""
        while start < stop:
            end = min(stop, (start // self.capacity + 1) * self.capacity)
            yield start, end
            start = end

    def slices(self, start: int, stop: int) -> dict[str, Array]:
        """Views of one piece."""
        first = start % self.capacity
        return {name: column[first : first + stop - start] for name, column in self.columns.items()}

    def copy_into(self, columns: Mapping[str, Array]) -> Lineage:
        """Put the rows where they belong in `columns`. The copy is a log of its own from then on."""
        for start, stop in self.pieces(self.start, self.stop):
            place_rows(self.slices(start, stop), columns, start)
        return Lineage()

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
