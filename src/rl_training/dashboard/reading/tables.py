"""The runs table: rows of the index in memory, filtered by the language of `rl list`, sorted and cut into pages.

Rows are read again when a file of the index or the output directory has changed; the config and the results of a run,
which are large, stay on disk, and single values of them are fetched for the keys that a filter or a column names.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.dashboard.text import short
from rl_training.experiments.keeping.filters import Filter, Key, check_keys, find_key, sorted_rows
from rl_training.runs.index import FILE, RunIndex
from rl_training.runs.recipe import recipe_sha256
from rl_training.runs.row import LARGE, UNSETTLED, Row, describe, directories, scan
from rl_training.system.terminal_text import printable
from rl_training.types import RLTrainingError, RunError

MAX_ROWS = 500
"""Rows of one page."""
SCAN_SECONDS = 30.0
"""How often the run directories are read where the index cannot be."""
REFRESH_SECONDS = 10.0
"""How often the index looks for runs that ended without a record, while some are running."""
SETTLED_NS = 1_000_000_000
RECIPES_AT_A_TIME = 500
HINT_ROWS = 50
LIVE = ("status", "env_steps", "reward", "loss", "seconds")
"""Columns that change while a run is training."""


class NoRunError(RLTrainingError):
    """A key that names no run: never seen, deleted or renamed."""


@dataclass(frozen=True)
class RunRef:
    """A run of the table: its key in addresses, its directory and its row."""

    key: str
    path: Path
    row: Row


@dataclass
class Root:
    """One output directory and what is known of its rows."""

    number: int
    path: Path
    signature: tuple[Any, ...] = ()
    rows: list[Row] = field(default_factory=list)
    note: str | None = None
    read_at: float = 0.0
    refreshed_at: float = 0.0
    folder_seen: int = -1
    unsettled_seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    """State of the runs that may go on or end without anybody writing to the index, when they were last looked at."""
    keeper: sqlite3.Connection | None = None
    """A connection that stays open, so that the files SQLite keeps beside the index are not made and removed, which
    would look like a change of the folder, by everybody who reads it."""
    kept: int | None = None
    """Which file the connection belongs to (its inode)."""

    def keep_open(self, found: tuple[int, int, int] | None) -> None:
        """Have a connection to the index that is there now; `found` is its entry of `stat`. One to the same file stays:
        opening and closing it would be a change that calls for the next look."""
        inode = None if found is None else found[2]
        if inode is None or (self.keeper is not None and inode == self.kept):
            return
        self.close()
        self.kept = inode
        with suppress(sqlite3.Error, OSError):
            self.keeper = sqlite3.connect(self.index.path, check_same_thread=False)
            self.keeper.execute("SELECT 1 FROM runs LIMIT 1").fetchone()

    def close(self) -> None:
        if self.keeper is not None:
            self.keeper.close()
            self.keeper = None

    @property
    def index(self) -> RunIndex:
        return RunIndex(self.path, timeout=5.0)

    def key(self, directory: str) -> str:
        """The run's name in addresses: its directory, with the number of the root for all but the first."""
        name = printable(directory)
        return name if self.number == 0 else f"{self.number}:{name}"

    @staticmethod
    def is_settled(signature: tuple[Any, ...]) -> bool:
        """Whether the last change is old enough that a further one would have another time stamp."""
        newest = max((found[0] for found in signature if found is not None), default=0)
        return bool(time.time_ns() - newest > SETTLED_NS)

    def stat(self) -> tuple[Any, ...]:
        """Changes when a run was added or removed or any process wrote to the index."""
        found: list[Any] = []
        for path in (self.path, self.path / FILE, self.path / f"{FILE}-wal"):
            try:
                state = os.stat(path)
                found.append((state.st_mtime_ns, state.st_size, state.st_ino))
            except OSError:
                found.append(None)
        return tuple(found)

    def unsettled(self) -> dict[str, tuple[int, int]]:
        """Time stamps of the runs that run or were killed: when one goes on, its record changes; a live process renews
        its lock too, which is looked at where nobody should have it."""
        return {
            row["directory"]: (
                modified(self.path / row["directory"] / "run.json"),
                0 if row["status"] == "running" else modified(self.path / row["directory"] / ".lock"),
            )
            for row in self.rows
            if row["status"] in UNSETTLED
        }


def modified(path: Path) -> int:
    """Time stamp of a file in nanoseconds; 0 if it is not there."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


class RunTable:
    """All runs of the output directories."""

    def __init__(self, output_dirs: Sequence[Path], *, read_only: bool = False) -> None:
        self.roots = [Root(number, path) for number, path in enumerate(output_dirs)]
        self.read_only = read_only
        self.live: dict[str, Row] = {}
        """Newest values of running runs by key, from their logs; laid over the rows."""
        self.version = 0
        """Grows whenever a row may have changed."""
        self._refs: dict[str, RunRef] = {}
        self._inside: dict[tuple[int, str, tuple[str, ...]], dict[str, dict[tuple[str, ...], Any]]] = {}
        self._queries: dict[tuple[int, str, str], list[RunRef]] = {}
        self._lock = threading.RLock()

    # -- reading ------------------------------------------------------------------------------------------------------

    def refresh(self, *, now: float | None = None) -> bool:
        """Look for changes; returns whether there were any. Costs three stats per output directory if not."""
        now = time.monotonic() if now is None else now
        with self._lock:
            changed = [root for root in self.roots if self._refresh_root(root, now)]
            if changed or not self.version:
                self._collect()
            return bool(changed)

    def _refresh_root(self, root: Root, now: float) -> bool:
        signature, unsettled = root.stat(), root.unsettled()
        has_running = any(row["status"] == "running" for row in root.rows)
        is_due = has_running and now - root.refreshed_at >= REFRESH_SECONDS
        is_due = is_due or unsettled != root.unsettled_seen
        if signature == root.signature and not is_due:
            return False
        if root.note is not None and now - root.read_at < SCAN_SECONDS and self.version:
            return False
        before, seen = root.rows, signature
        root.keep_open(signature[1])
        try:
            if not root.path.is_dir():
                raise FileNotFoundError(2, "it is gone", str(root.path))
            self._bring_up_to_date(root, is_due or signature[0] != root.folder_seen)
            seen = root.stat()
            rows = self._read_index(root)
            root.note = None
        except (sqlite3.Error, OSError) as error:
            rows = scan(root.path, config=False)
            rows.sort(key=lambda row: (row["started"] or "", row["directory"]))
            root.note = f"the index of '{root.path}' cannot be used ({error}); the run directories were read instead"
        root.refreshed_at = root.read_at = now
        for row in rows:
            row["root"] = root.number
        root.rows, root.folder_seen = rows, signature[0]
        # likewise: what changed while the rows were read is found at the next look
        root.unsettled_seen = {name: unsettled.get(name, found) for name, found in root.unsettled().items()}
        # as it was before the rows were read: a commit during the reading is then found at the next look
        root.signature = seen if root.is_settled(seen) else ()
        return rows != before or not self.version

    def _bring_up_to_date(self, root: Root, look_at_folders: bool) -> None:
        """Let the index find runs that are new, gone or ended, unless nothing may be written."""
        is_empty = not root.index.path.exists() and not any(root.path.iterdir())
        if look_at_folders and not self.read_only and not is_empty:  # an empty folder stays empty
            root.index.refresh()

    def _read_index(self, root: Root) -> list[Row]:
        index = root.index
        if self.read_only:
            return self._read_only(root, index)
        if not index.path.exists():
            return []
        rows = index.rows()
        if any(row["recipe_sha256"] is None for row in rows) and index.fill_recipes():
            rows = index.rows()
        return rows

    def _read_only(self, root: Root, index: RunIndex) -> list[Row]:
        """The rows without writing anything: what the index lacks or may have wrong is read from the directories."""
        if not index.path.exists():
            return sorted(scan(root.path, config=True), key=lambda row: (row["started"] or "", row["directory"]))
        known = {row["directory"]: row for row in index.rows()}
        present = set(directories(root.path))
        rows = [row for name, row in known.items() if name in present and row["status"] not in UNSETTLED]
        fresh = [name for name in present if name not in known or known[name]["status"] in UNSETTLED]
        for name in fresh:
            with suppress(RunError):
                rows.append({k: v for k, v in describe(root.path / name).items() if k not in LARGE})
        missing = [row["directory"] for row in rows if row["recipe_sha256"] is None]
        by_name = {row["directory"]: row for row in rows}
        for start in range(0, len(missing), RECIPES_AT_A_TIME):
            for row in index.rows(large=["config"], only=missing[start : start + RECIPES_AT_A_TIME]):
                by_name[row["directory"]]["recipe_sha256"] = recipe_sha256(row["config"])
        return sorted(rows, key=lambda row: (row["started"] or "", row["directory"]))

    def _collect(self) -> None:
        self._refs = {}
        for root in self.roots:
            for row in root.rows:
                self._refs.setdefault(
                    root.key(row["directory"]), RunRef(root.key(row["directory"]), root.path / row["directory"], row)
                )
        self.live = {key: value for key, value in self.live.items() if key in self._refs}
        for key, values in self.live.items():
            self._overlay(self._refs[key], values)
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._queries.clear()
        self._inside.clear()

    def set_live(self, key: str, values: Mapping[str, Any]) -> None:
        """Newest values of a running run, which the index will only have at its end."""
        with self._lock:
            if key in self._refs:
                self.live[key] = {**self.live.get(key, {}), **values}
                self._overlay(self._refs[key], values)
                self.version += 1
                self._queries.clear()

    @staticmethod
    def _overlay(ref: RunRef, values: Mapping[str, Any]) -> None:
        if ref.row["status"] == "running" or values.get("status"):
            ref.row.update({name: value for name, value in values.items() if name in LIVE})

    def touch(self, ref: RunRef) -> None:
        """Read one run again after it was changed through the page."""
        with self._lock:
            with suppress(RunError):
                ref.row.update({k: v for k, v in describe(ref.path).items() if k not in LARGE})
            self._changed()

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            for root in self.roots:
                root.close()

    # -- asking -------------------------------------------------------------------------------------------------------

    @property
    def notes(self) -> list[str]:
        return [root.note for root in self.roots if root.note is not None]

    def all(self) -> list[RunRef]:
        """Every run, newest first."""
        with self._lock:
            return sorted(self._refs.values(), key=lambda ref: (ref.row["started"] or "", ref.path.name), reverse=True)

    def find(self, key: str) -> RunRef:
        """The run of a key. Keys are looked up and never joined to a path; NoRunError for one that is not there."""
        with self._lock:
            ref = self._refs.get(key)
        if ref is None or not ref.path.is_dir():
            raise NoRunError(f"no run '{printable(key)[:200]}'; it may have been deleted or renamed")
        return ref

    def running(self) -> list[RunRef]:
        with self._lock:
            return [ref for ref in self._refs.values() if ref.row["status"] == "running"]

    def select(self, text: str = "", sort: str = "") -> list[RunRef]:
        """The runs that pass a filter, newest first or as `sort` says; ConfigError with the words of `rl list`."""
        with self._lock:
            asked = (self.version, text, sort)
            if asked not in self._queries:
                self._queries[asked] = self._select(text, sort)
            return self._queries[asked]

    def _select(self, text: str, sort: str) -> list[RunRef]:
        chosen = Filter.parse(text)
        keys = [*chosen.keys, *([find_key(sort.removeprefix("-"))] if sort else [])]
        refs = self.all()
        rows = self.with_values(refs, keys)
        self._check(keys, rows)
        passed = [(row, ref) for row, ref in zip(rows, refs, strict=True) if chosen.accepts(row)]
        if not sort:
            return [ref for _, ref in passed]
        by_row = {id(row): ref for row, ref in passed}
        oldest_first = [row for row, _ in reversed(passed)]  # the order of equal values in `rl list`
        return [by_row[id(row)] for row in sorted_rows(oldest_first, sort)]

    def _check(self, keys: Iterable[Key], rows: Sequence[Row]) -> None:
        """ConfigError for a metric or a field that nobody has, with the suggestion that `rl list` would make."""
        inner = [key for key in dict.fromkeys(keys) if key.inside]
        missing = [key for key in inner if not any(_has(key, row) for row in rows)]
        if missing and rows:
            newest = [ref for ref in self.all() if "root" in ref.row][:HINT_ROWS]
            check_keys(missing, self.full_rows(newest))

    def with_values(self, refs: Sequence[RunRef], keys: Iterable[Key]) -> list[Row]:
        """The rows, extended by the values inside of large columns that the keys name."""
        inner: dict[str, list[tuple[str, ...]]] = {}
        for key in dict.fromkeys(keys):
            if key.inside:
                inner.setdefault(key.column, []).append(key.inside)
        if not inner:
            return [ref.row for ref in refs]
        rows = []
        for ref in refs:
            row = dict(ref.row)
            for column, paths in inner.items():
                tree: dict[str, Any] = {}
                for path in paths:
                    found = self._values(row["root"], column, path).get(ref.path.name, {})
                    if path in found:
                        _put(tree, path, found[path])
                row[column] = tree
            rows.append(row)
        return rows

    def _values(self, root: int, column: str, path: tuple[str, ...]) -> dict[str, dict[tuple[str, ...], Any]]:
        with self._lock:
            asked = (root, column, path)
            if asked not in self._inside:
                self._inside[asked] = self._read_values(self.roots[root], column, path)
            return self._inside[asked]

    def _read_values(self, root: Root, column: str, path: tuple[str, ...]) -> dict[str, dict[tuple[str, ...], Any]]:
        if root.note is None and root.index.path.exists():
            with suppress(sqlite3.Error, OSError):
                return root.index.inside(column, [path])
        found: dict[str, dict[tuple[str, ...], Any]] = {}
        for row in scan(root.path, config=column == "config"):
            value = Key(column, path)
            if _has(value, row):
                found[row["directory"]] = {path: value.of(row)}
        return found

    def full_rows(self, refs: Sequence[RunRef]) -> list[Row]:
        """The rows with config and results, for a number of runs that is small."""
        found: dict[tuple[int, str], Row] = {}
        for root in self.roots:
            names = [ref.path.name for ref in refs if ref.row["root"] == root.number]
            if names and root.note is None and root.index.path.exists():
                with suppress(sqlite3.Error, OSError):
                    for row in root.index.rows(large=LARGE, only=names):
                        found[root.number, row["directory"]] = row
        rows = []
        for ref in refs:
            whole = found.get((ref.row["root"], ref.path.name))
            if whole is None or whole["status"] in UNSETTLED or not whole["config"]:
                with suppress(RunError):
                    whole = describe(ref.path)
            rows.append({**(whole or {**ref.row, "results": {}, "config": {}}), "root": ref.row["root"]})
        return rows

    def page(self, text: str, sort: str, columns: Sequence[str], offset: int, limit: int) -> dict[str, Any]:
        """One page of the table: the wanted columns of the runs that pass the filter."""
        keys = {name: find_key(name) for name in columns if name not in ("key", "root")}
        found = self.select(text, sort)
        shown = found[offset : offset + min(limit, MAX_ROWS)]
        rows = self.with_values(shown, keys.values())
        self._check([key for key in keys.values() if key.inside], rows) if len(shown) == len(found) else None
        return {
            "total": len(found),
            "all": len(self._refs),
            "offset": offset,
            "counts": dict(Counter(str(ref.row["status"]) for ref in found)),
            "columns": list(columns),
            "rows": [
                {
                    "key": ref.key,
                    **{name: _cell(key.of(row)) for name, key in keys.items()},
                    "cleaned": bool(ref.row["cleaned"]),
                }
                for ref, row in zip(shown, rows, strict=True)
            ],
            "notes": self.notes,
        }

    def stamp(self, *parts: object) -> str:
        """An ETag: equal for equal questions while nothing has changed."""
        return hashlib.blake2b(repr((self.version, parts)).encode(), digest_size=12).hexdigest()


def _cell(value: Any) -> Any:
    return short(value, 80) if isinstance(value, Mapping) else value


def _has(key: Key, row: Mapping[str, Any]) -> bool:
    value: Any = row.get(key.column)
    for part in key.inside:
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value
