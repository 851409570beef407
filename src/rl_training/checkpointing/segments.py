"""Segments: the rows of growing logs, in files that are written once and shared by the checkpoints that need them.

    checkpoints/segments/rows_000000120000_000000130000_5f1e...a1.a.safetensors   rows [120000, 130000)
    checkpoints/segments/rows_000000120000_000000130000_5f1e...a1.b.safetensors   a second copy of the same bytes

A checkpoint lists the segments of its rows with their checksums and writes only rows that no segment holds yet. Several
checkpoints depend on one segment, so falling back to an older checkpoint would not help if it is damaged: therefore
each segment has two copies, and a row is lost only if both are damaged. A small last segment is rewritten together with
the new rows, which keeps the number of segments below about 130. Files are synced before a manifest lists them, and
removed when no manifest does any more. Not here: which checkpoints there are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rl_training.checkpointing.row_log import LogIdentity, RowLog, place_rows
from rl_training.checkpointing.safetensors_format import blob_chunks, parse_blob
from rl_training.checkpointing.verified_files import DamagedCheckpointError, hash_file, opened, read_file
from rl_training.system.atomic_io import (
    FileRecord,
    fault_point,
    fsync_dir,
    remove_leftovers,
    rename,
    temporary_path,
    write_file,
)
from rl_training.types import Array, CheckpointError

FILE_NAME = re.compile(r"(rows_[0-9]{12,18}_[0-9]{12,18}_[0-9a-f]{20})\.[ab]\.safetensors")
SEGMENT_LINE = re.compile(r"([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) ([0-9a-f]{64})")
COPIES = (".a.safetensors", ".b.safetensors")
SMALL_SHARE = 128
"""A last segment of fewer than 1/128 of a log's capacity is rewritten together with the rows that follow it."""
LARGE_SHARE, LARGE_BYTES = 8, 256 * 2**20
"""Upper bounds on a segment: 1/8 of the capacity in rows (a larger one would keep overwritten rows for long), and this
many bytes."""


@dataclass(frozen=True)
class Segment:
    """Rows [start, stop) on disk."""

    start: int
    stop: int
    bytes: int
    sha256: str

    @cached_property
    def name(self) -> str:
        return f"rows_{self.start:012d}_{self.stop:012d}_{self.sha256[:20]}"

    @property
    def record(self) -> FileRecord:
        return FileRecord(self.sha256, self.bytes)


@dataclass(frozen=True)
class SavedLog:
    """Rows [start, stop) and the segments that hold them, in order; the first may begin before `start`."""

    start: int
    stop: int
    segments: tuple[Segment, ...]

    def to_json(self) -> dict[str, Any]:
        """The entry in a manifest, with one line per segment: its rows, its length in bytes, its SHA-256."""
        segments = [f"{s.start} {s.stop} {s.bytes} {s.sha256}" for s in self.segments]
        return {"start": self.start, "stop": self.stop, "segments": segments}

    @classmethod
    def from_json(cls, raw: Any) -> SavedLog:
        """The inverse of `to_json`; ValueError, TypeError or KeyError for anything else."""
        start, stop = raw["start"], raw["stop"]
        segments: list[Segment] = []
        if not (type(start) is int and type(stop) is int and 0 <= start <= stop):
            raise ValueError("the rows of a log must be numbers")
        for line in raw["segments"]:
            if not (match := SEGMENT_LINE.fullmatch(line)):
                raise ValueError("a segment needs its rows, its length and its SHA-256")
            segment = Segment(int(match[1]), int(match[2]), int(match[3]), match[4])
            if segment.start >= segment.stop or (segments and segment.start != segments[-1].stop):
                raise ValueError("the segments are not in order")
            segments.append(segment)
        held = bool(segments) and segments[0].start <= start and segments[-1].stop == stop
        if not held and (start < stop or segments):
            raise ValueError("the segments do not hold the rows")
        return cls(start, stop, tuple(segments))


class SavedRows:
    """The rows of a saved log, read lazily from its segments and verified again when they are read."""

    def __init__(self, store: SegmentStore, log: SavedLog, identity: LogIdentity) -> None:
        self.start = log.start
        self.stop = log.stop
        self._store = store
        self._segments = log.segments
        self._identity = identity

    def copy_into(self, columns: Mapping[str, Array]) -> LogIdentity:
        """Copy the rows to their places in `columns`. The first caller gets the identity of the saved log, so that its
        later saves reuse the same segments; any further caller gets a new one."""
        for start, rows in self._pieces():
            place_rows(rows, columns, start)
        identity, self._identity = self._identity, LogIdentity()
        return identity

    def arrays(self) -> dict[str, Array]:
        """Copies of all rows, oldest first."""
        pieces = [rows for _, rows in self._pieces()]
        names = pieces[0] if pieces else {}
        return {name: np.concatenate([rows[name] for rows in pieces]) for name in names}

    def _pieces(self) -> Iterator[tuple[int, dict[str, Array]]]:
        for segment in self._segments:
            start = max(segment.start, self.start)
            rows = self._store.read(segment)
            if any(len(column) != segment.stop - segment.start for column in rows.values()):
                raise DamagedCheckpointError(
                    f"segment {segment.name} does not hold {segment.stop - segment.start} rows"
                )
            yield start, {name: column[start - segment.start :] for name, column in rows.items()}


class SegmentStore:
    """The segments of one run: writes, verifies, reads and removes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: WeakKeyDictionary[LogIdentity, tuple[Segment, ...]] = WeakKeyDictionary()
        self._sound: set[str] = set()
        """Names of files that this process has verified."""

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, log: RowLog) -> SavedLog:
        """Write the rows that no segment holds yet, sync them and read them back."""
        segments: list[Segment] = []
        fresh: list[Segment] = []
        for piece in self._plan(log):
            if isinstance(piece, Segment):
                segments.append(piece)
            else:
                fresh.append(self._write_segment(log, *piece))
                segments.append(fresh[-1])
        if fresh:
            fsync_dir(self.path)
            for segment in fresh:
                if damage := self._check(segment):
                    raise DamagedCheckpointError(damage[0])
        return SavedLog(log.start, log.stop, tuple(segments))

    def remember(self, log: RowLog, saved: SavedLog) -> None:
        """Let the next save of the log reuse these segments; called once a checkpoint that lists them is published."""
        self._known[log.identity] = saved.segments

    def missing_bytes(self, log: RowLog) -> int:
        """How many bytes a save of the log would write."""
        row = sum(column[:1].nbytes for column in log.columns.values())
        new = sum(piece[1] - piece[0] for piece in self._plan(log) if not isinstance(piece, Segment))
        return len(COPIES) * row * new

    def _plan(self, log: RowLog) -> list[Segment | tuple[int, int]]:
        """The log as existing segments and [start, stop) pieces still to be written, in order."""
        plan: list[Segment | tuple[int, int]] = []
        known = [segment for segment in self._known.get(log.identity, ()) if segment.stop > log.start]
        if known and (known[0].start > log.start or known[-1].stop > log.stop):
            known = []  # the log was rewound, so its rows are no longer those of the segments
        end = log.start
        sizes = self._sizes() if known else {}
        for segment in known:
            at_end = segment is known[-1] and segment.stop < log.stop
            small = segment.stop - segment.start < log.capacity // SMALL_SHARE
            same_lap = segment.start // log.capacity == (log.stop - 1) // log.capacity
            if at_end and small and same_lap:
                break
            if self._is_whole(segment, sizes):
                plan.append(segment)
            else:
                plan += self._cut(log, max(segment.start, log.start), segment.stop)
            end = segment.stop
        return plan + self._cut(log, end, log.stop)

    def _cut(self, log: RowLog, start: int, stop: int) -> list[Segment | tuple[int, int]]:
        """[start, stop) in pieces no larger than a segment may be."""
        row = sum(column[:1].nbytes for column in log.columns.values())
        most = max(min(log.capacity // LARGE_SHARE, LARGE_BYTES // max(row, 1)), 1)
        return [
            (first, min(first + most, end))
            for begin, end in log.pieces(start, stop)
            for first in range(begin, end, most)
        ]

    def _write_segment(self, log: RowLog, start: int, stop: int) -> Segment:
        if self.path.is_symlink():
            raise CheckpointError(f"{self.path} is a symbolic link; move or link the whole run directory instead")
        if not self.path.is_dir():
            fault_point("create", self.path)
            self.path.mkdir()
            fsync_dir(self.path.parent)
        rows = log.slices(start, stop)
        for copy in COPIES:
            temporary = temporary_path(self.path)
            try:
                record = write_file(temporary, blob_chunks(rows))
                segment = Segment(start, stop, record.bytes, record.sha256)
                rename(temporary, self.path / (segment.name + copy))
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
        return segment

    # -- reading ------------------------------------------------------------------------------------------------------

    def load(self, log: SavedLog, report: Callable[[str], None]) -> SavedRows:
        """The rows, after all their bytes were verified; CheckpointError if both copies of a segment are damaged."""
        for segment in log.segments:
            for text in self._check(segment):
                report(f"a segment is damaged ({text}); using its other copy")
        identity = LogIdentity()
        self._known[identity] = log.segments
        return SavedRows(self, log, identity)

    def verify(self, log: SavedLog) -> None:
        """CheckpointError unless every segment has an intact copy. Files that this process verified are not re-read."""
        sizes = self._sizes() if log.segments else {}
        for segment in log.segments:
            if not self._is_whole(segment, sizes):
                self._check(segment)

    def read(self, segment: Segment) -> dict[str, Array]:
        """The rows of a segment, from an intact copy."""
        damage = []
        with opened(self.path) as folder:
            for copy in COPIES:
                try:
                    return parse_blob(read_file(folder, segment.name + copy, segment.record), segment.name + copy)
                except (CheckpointError, OSError) as error:
                    damage.append(str(error))
        raise DamagedCheckpointError(f"both copies of a segment are damaged: {'; '.join(damage)}")

    def _check(self, segment: Segment) -> list[str]:
        """Hash both copies; returns what is wrong with one of them. CheckpointError if both are damaged."""
        damage = []
        with opened(self.path) as folder:
            for copy in COPIES:
                try:
                    hash_file(folder, segment.name + copy, segment.record)
                    self._sound.add(segment.name + copy)
                except (CheckpointError, OSError) as error:
                    self._sound.discard(segment.name + copy)
                    damage.append(str(error))
        if len(damage) == len(COPIES):
            raise DamagedCheckpointError(f"both copies of a segment are damaged: {'; '.join(damage)}")
        return damage

    def _is_whole(self, segment: Segment, sizes: Mapping[str, int]) -> bool:
        """Whether both copies have their recorded length and were verified by this process before."""
        names = [segment.name + copy for copy in COPIES]
        return all(name in self._sound and sizes.get(name) == segment.bytes for name in names)

    def _sizes(self) -> dict[str, int]:
        """File name to length, without links; empty if there is no folder."""
        try:
            with os.scandir(self.path) as entries:
                files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
                return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in files}
        except OSError:
            return {}

    # -- removing -----------------------------------------------------------------------------------------------------

    def clean(self, referenced: Collection[str]) -> None:
        """Remove every segment that is not `referenced`, and files a crash left half-written; others are kept."""
        if not self.path.is_dir() or self.path.is_symlink():
            return
        remove_leftovers(self.path)
        for name in sorted(os.listdir(self.path)):
            match = FILE_NAME.fullmatch(name)
            if match and match[1] not in referenced:
                fault_point("remove", self.path / name)
                (self.path / name).unlink(missing_ok=True)
                self._sound.discard(name)
