"""The column store: metrics of many logs as arrays, read once and then only where a log has grown.

A resume cuts a log back, and the run may write past the old length again before anybody looks. So a log counts as grown
only if it is the same file and the last line that was read is still at its place; else it is read anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rl_training.dashboard.reading.log_columns import parse_columns
from rl_training.system.json_lines import whole_rows
from rl_training.types import Array

CHUNK = 2**25
MAX_MEMORY = 64 * 2**20
"""Bytes of arrays kept; the columns that were not used for longest go first."""
MIN_CACHED = 2**20
"""Logs below this size are read faster than a cache file is found."""
MAX_CACHE = 512 * 2**20
FOLDER = Path(".cache") / "columns"
"""Place of the cache files inside an output directory."""
LAST = 4096
"""Bytes before the end that must still be the same."""


@dataclass
class LogState:
    """What was read of one log: up to where, and the columns that were asked for."""

    path: Path
    inode: int = -1
    offset: int = 0
    """Bytes of complete lines that the columns cover."""
    last: bytes = b""
    """Hash of the bytes before `offset`."""
    generation: int = 0
    """Grows when the log was cut back or replaced."""
    columns: dict[str, Array] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def size(self) -> int:
        return sum(column.nbytes for column in list(self.columns.values()))


@dataclass(frozen=True)
class LogView:
    """Columns of one log at one moment."""

    columns: dict[str, Array]
    offset: int
    generation: int


class ColumnStore:
    """Columns of metrics logs, in memory and, for large logs, in cache files of their output directory."""

    def __init__(self, *, caches: bool = True, max_memory: int = MAX_MEMORY) -> None:
        self.caches = caches
        self.max_memory = max_memory
        self._logs: OrderedDict[Path, LogState] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, run: Path, names: Sequence[str]) -> LogView:
        """The columns of a run's metrics log as it is now."""
        path = run / "logs" / "metrics.jsonl"
        with self._lock:
            state = self._logs.setdefault(path, LogState(path))
            self._logs.move_to_end(path)
        with state.lock:
            self._update(state)
            missing = [name for name in dict.fromkeys(names) if name not in state.columns]
            state.columns |= self._load(state, run, missing) if missing else {}
            view = LogView({name: state.columns[name] for name in names}, state.offset, state.generation)
        self._evict()
        return view

    def forget(self) -> None:
        """Drop everything in memory."""
        with self._lock:
            self._logs.clear()

    def _update(self, state: LogState) -> None:
        """Follow the log: read what was appended, or start anew where it was cut back."""
        try:
            found = os.stat(state.path)
            end = whole_rows(state.path) if found.st_size != state.offset else state.offset
        except OSError:
            found, end = None, 0
        inode = -1 if found is None else found.st_ino
        is_same = inode == state.inode and end >= state.offset and _last(state.path, state.offset) == state.last
        if not is_same:
            state.generation += state.inode != -1
            state.columns, state.inode, state.offset = {}, inode, 0
        if end > state.offset:
            names = list(state.columns)
            for name, new in (_parse(state.path, state.offset, end, names) if names else {}).items():
                state.columns[name] = np.concatenate([state.columns[name], new])
            state.offset = end
        state.last = _last(state.path, state.offset)

    def _load(self, state: LogState, run: Path, names: Sequence[str]) -> dict[str, Array]:
        """Columns that were not asked for before: from cache files, else all together in one pass over the log."""
        is_large = self.caches and state.offset >= MIN_CACHED
        starts: dict[int, list[str]] = {}
        known: dict[str, Array] = {}
        for name in names:
            start, known[name] = _read_cache(_cache_file(run, name), state) if is_large else (0, np.empty(0))
            starts.setdefault(start, []).append(name)
        for start, together in starts.items():
            if start == state.offset:
                continue
            for name, new in _parse(state.path, start, state.offset, together).items():
                known[name] = np.concatenate([known[name], new])
                if is_large and state.offset - start >= MIN_CACHED:
                    _write_cache(_cache_file(run, name), state, known[name])
        return known

    def _evict(self) -> None:
        with self._lock:
            total = sum(state.size for state in self._logs.values())
            while total > self.max_memory and len(self._logs) > 1:
                _, state = self._logs.popitem(last=False)
                total -= state.size


def _parse(path: Path, start: int, end: int, names: Sequence[str]) -> dict[str, Array]:
    """Columns of the lines between two offsets, in pieces of whole lines."""
    parts: dict[str, list[Array]] = {name: [np.empty(0)] for name in names}
    with suppress(OSError), open(path, "rb") as file:
        file.seek(start)
        left, rest = end - start, b""
        while left > 0 and (data := file.read(min(CHUNK, left))):
            left -= len(data)
            data = rest + data
            cut = data.rfind(b"\n") + 1
            rest = data[cut:]
            for name, column in parse_columns(data[:cut], names).items():
                parts[name].append(column)
    return {name: np.concatenate(found) for name, found in parts.items()}


def _last(path: Path, offset: int) -> bytes:
    """Hash of the bytes before an offset; empty where they cannot be read."""
    with suppress(OSError), open(path, "rb") as file:
        start = max(offset - LAST, 0)
        file.seek(start)
        return hashlib.blake2b(file.read(offset - start), digest_size=16).digest()
    return b""


def _cache_file(run: Path, name: str) -> Path:
    digest = hashlib.blake2b(f"{run.name}\0{name}".encode(errors="replace"), digest_size=16).hexdigest()
    return run.parent / FOLDER / f"{digest}.f64"


def _read_cache(path: Path, state: LogState) -> tuple[int, Array]:
    """Offset and column of a cache file that fits the log; (0, empty) where there is none."""
    nothing = 0, np.empty(0)
    with suppress(OSError, ValueError, KeyError, TypeError), open(path, "rb") as file:
        meta = json.loads(file.readline(1000))
        offset = int(meta["offset"])
        fits = meta["inode"] == state.inode and offset <= state.offset
        if not fits or bytes.fromhex(meta["last"]) != _last(state.path, offset):
            return nothing
        column = np.frombuffer(file.read(), np.float64)
        return (offset, column) if len(column) == meta["rows"] else nothing
    return nothing


def _write_cache(path: Path, state: LogState, column: Array) -> None:
    """Write a cache file; that it could not be written does not matter."""
    meta = {"inode": state.inode, "offset": state.offset, "last": state.last.hex(), "rows": len(column)}
    aside = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(json.dumps(meta).encode() + b"\n" + column.tobytes())
        os.replace(aside, path)
        _trim(path.parent)


def _trim(folder: Path) -> None:
    """Remove the oldest cache files beyond `MAX_CACHE`, one folder listing in sixteen writes."""
    if os.urandom(1)[0] % 16:
        return
    files = sorted((found.stat().st_mtime, found.stat().st_size, found.path) for found in os.scandir(folder))
    total = sum(size for _, size, _ in files)
    for _, size, name in files:
        if total <= MAX_CACHE:
            break
        os.unlink(name)
        total -= size
