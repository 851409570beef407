"""The index of all runs: one SQLite file in the output directory, to which every run adds its own row.

It is a cache: every row comes from a run directory and can be read from there again. If the file is damaged or cannot
be written, a run warns and continues, a listing reads the directories instead, and `rl index rebuild` repairs it.

On a local disk SQLite writes ahead (WAL). On a network file system that would damage the file, because each host maps
its own shared memory: there the journal mode is DELETE, every commit is synced, runs with a parent leave the writing to
it (`RL_TRAINING_INDEX=0`), and readers write nothing: they merge what the directories say in memory.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from rl_training.runs.names import INDEX
from rl_training.runs.recipe import recipe_sha256
from rl_training.runs.row import COLUMNS, LARGE, UNSETTLED, Row, by_age, describe, described, directories, scan
from rl_training.system.atomic_io import disk_state, temporary_path
from rl_training.system.file_systems import is_network
from rl_training.types import RLTrainingError

FILE = INDEX
INDEX_VARIABLE = "RL_TRAINING_INDEX"
"""Environment variable: 0 in runs whose parent, on another host, writes their rows."""
SCHEMA = 1
RUN_SECONDS = 5.0
"""How long a run waits for the database lock; then it warns and continues."""
FROM_CONFIG = ("recipe_sha256", "config")
"""Columns that are derived from the config alone; a row without them keeps the stored ones."""
STATE = tuple(name for name in COLUMNS if name not in FROM_CONFIG)
"""Columns that may change during a run."""


class RunIndex:
    """The index of one output directory. Every call opens the file again: many short-lived processes share it."""

    def __init__(self, output_dir: str | Path, *, timeout: float = 30.0) -> None:
        self.output_dir = Path(output_dir).expanduser()
        self.path = self.output_dir / FILE
        self.timeout = timeout

    def put(self, rows: Iterable[Row]) -> None:
        """Insert or replace rows in one transaction. A row without `config` keeps the stored one."""
        with self._writing() as connection:
            _put(connection, rows)

    def rows(self, *, large: Iterable[str] = (), only: Collection[str] | None = None) -> list[Row]:
        """Every run, or those of the directories `only`, oldest first, with only the requested ones of the `LARGE`
        columns."""
        columns = [name for name in COLUMNS if name not in LARGE or name in set(large)]
        with self._open() as connection:
            stored = _stored_columns(connection)
            names = ", ".join(f'"{name}"' if name in stored else f'NULL AS "{name}"' for name in columns)
            where = "" if only is None else "WHERE directory IN (SELECT value FROM json_each(?))"
            values = () if only is None else (json.dumps(sorted(only)),)
            found = connection.execute(
                f"SELECT {names} FROM runs {where} ORDER BY started, directory", values
            ).fetchall()
        return [_decoded(dict(zip(columns, values, strict=True))) for values in found]

    def inside(self, column: str, paths: Sequence[tuple[str, ...]]) -> dict[str, dict[tuple[str, ...], Any]]:
        """Single values inside a `LARGE` column, by directory and path; much cheaper than the whole column. A path that
        a row does not have is left out."""
        if column not in LARGE:
            raise ValueError(f"'{column}' has nothing inside")
        inner = ["$" + "".join(f".{json.dumps(part)}" for part in path) for path in paths]
        query = f"SELECT directory{', json_type(%s, ?), json_extract(%s, ?)' * len(paths)} FROM runs"
        with self._open() as connection:
            found = connection.execute(
                query.replace("%s", f'"{column}"'), [path for path in inner for _ in range(2)]
            ).fetchall()
        return {
            directory: {
                path: _extracted(kind, value)
                for path, kind, value in zip(paths, values[0::2], values[1::2], strict=True)
                if kind is not None
            }
            for directory, *values in found
        }

    def fill_recipes(self) -> int:
        """Add `recipe_sha256` to the rows that an older version wrote, from their stored config; returns how many."""
        with self._writing() as connection:
            query = "SELECT directory, config FROM runs WHERE recipe_sha256 IS NULL AND config IS NOT NULL"
            found = connection.execute(query).fetchall()
            recipes = [(recipe_sha256(json.loads(config)), directory) for directory, config in found]
            connection.executemany("UPDATE runs SET recipe_sha256 = ? WHERE directory = ?", recipes)
        return len(recipes)

    def refresh(self) -> None:
        """Update the rows: directories that are new or gone, and runs that may have ended without updating theirs."""
        changed, gone = self._changes()
        if changed or gone:
            with self._writing() as connection:
                _put(connection, changed)
                connection.executemany("DELETE FROM runs WHERE directory = ?", [(name,) for name in gone])

    def current_rows(self, *, large: Iterable[str] = ()) -> list[Row]:
        """Every run as it is now, oldest first: after `refresh`, or merged in memory where readers do not write."""
        wanted = set(large)
        if not is_network(self.output_dir):
            self.refresh()
            return self.rows(large=wanted)
        if not self.path.exists():
            return by_age(scan(self.output_dir, config="config" in wanted))
        changed, gone = self._changes()
        merged = {row["directory"]: row for row in self.rows(large=wanted) if row["directory"] not in gone}
        left_out = [name for name in LARGE if name not in wanted]
        for row in changed:
            config = row["config"] if row["config"] is not None else merged.get(row["directory"], {}).get("config")
            fresh = {**row, "config": config or {}}
            merged[row["directory"]] = {name: value for name, value in fresh.items() if name not in left_out}
        return by_age(merged.values())

    def _changes(self) -> tuple[list[Row], set[str]]:
        """Rows that differ from the stored ones, and the names of directories that are gone."""
        with self._open() as connection:
            known = {name for (name,) in connection.execute("SELECT directory FROM runs")}
            stored = _stored_columns(connection)
            names = ", ".join(f'"{name}"' if name in stored else "NULL" for name in STATE)
            query = f"SELECT {names} FROM runs WHERE status IN {UNSETTLED}"
            unsettled = {values[0]: values for values in connection.execute(query)}
        present = directories(self.output_dir)
        changed = described(self.output_dir, [name for name in present if name not in known])
        for row in described(self.output_dir, [name for name in present if name in unsettled], config=False):
            if tuple(_encoded(row)[name] for name in STATE) != unsettled[row["directory"]]:
                changed.append(row)
        return changed, known - set(present)

    def rebuild(self) -> int:
        """Read every run directory again; returns how many there are. A damaged file is replaced."""
        rows = scan(self.output_dir, config=True)
        try:
            self._replace_rows(rows)
        except sqlite3.DatabaseError as error:
            is_other_database = "no such" in str(error)
            if isinstance(error, sqlite3.OperationalError) and not is_other_database:
                raise  # locked, disk full, no permission: a new file would not help
            _unlink(self.path)
            self._replace_rows(rows)
        return len(rows)

    def journal_mode(self) -> str:
        """SQLite's journal mode: `wal` where the file system supports it."""
        with self._open() as connection:
            return str(connection.execute("PRAGMA journal_mode").fetchone()[0])

    def check(self) -> str:
        """SQLite's own integrity check: `ok`, or what is wrong."""
        with self._open() as connection:
            return str(connection.execute("PRAGMA integrity_check").fetchone()[0])

    # -- the file -----------------------------------------------------------------------------------------------------

    def _replace_rows(self, rows: Iterable[Row]) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM runs")
            _put(connection, rows)
        if (state := self.check()) != "ok":
            raise sqlite3.DatabaseError(state)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        if not self.path.exists():
            self._create()
        with closing(connect(self.path, self.timeout)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA:
                raise sqlite3.DatabaseError(f"its layout is {version}, this version of rl_training has {SCHEMA}")
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that takes the write lock at its start, so that it never has to be retried."""
        with self._open() as connection:
            if is_network(self.output_dir):
                _keep_journal(connection, self.timeout)
                connection.execute("PRAGMA synchronous = FULL")
            else:
                connection.execute("PRAGMA synchronous = NORMAL")  # a commit survives any end of the process
            connection.execute("BEGIN IMMEDIATE")
            try:
                _add_columns(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def _create(self) -> None:
        """Create the file under a temporary name and rename it, so that no process opens an incomplete one."""
        self.output_dir.mkdir(parents=True, exist_ok=True)
        aside = temporary_path(self.output_dir)
        try:
            with closing(connect(aside, self.timeout)) as connection:
                shared = is_network(self.output_dir)
                mode = _keep_journal(connection, self.timeout) if shared else _write_ahead(connection)
                columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
                connection.execute(f"CREATE TABLE runs ({columns})")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
            _put_into_place(aside, self.path)
        finally:
            _unlink(aside)
        if mode != "wal" and not shared:
            warnings.warn(
                f"the file system of '{self.path}' cannot do WAL; the index uses the journal mode '{mode}', in which "
                "writers and readers wait for each other",
                UserWarning,
                stacklevel=2,
            )


def _put_into_place(aside: Path, path: Path) -> None:
    """Give a new file its name, unless another process was faster: os.link fails if the name exists."""
    try:
        os.link(aside, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        os.rename(aside, path)


def _unlink(path: Path) -> None:
    """Remove a database and the files SQLite keeps beside it; those first, so that a new file never gets an old log."""
    for ending in ("-wal", "-shm", "-journal", ""):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{ending}")


def connect(path: Path, timeout: float) -> sqlite3.Connection:
    """A connection in autocommit mode: transactions begin and end explicitly."""
    return sqlite3.connect(path, timeout=timeout, isolation_level=None)


def record(run: Path) -> None:
    """Write the row of a run, when it begins and when it ends. A failure is only a warning that names the remedy."""
    if os.environ.get(INDEX_VARIABLE) != "0":
        _store(run.parent, lambda: [describe(run)])


def record_all(output_dir: Path, runs: Sequence[Path]) -> None:
    """Write the rows of several runs in one transaction, for a parent whose members do not; a folder that is not a run
    yet is left out."""
    _store(output_dir, lambda: described(output_dir, [run.name for run in runs]))


def _store(output_dir: Path, rows: Callable[[], list[Row]]) -> None:
    try:
        RunIndex(output_dir, timeout=RUN_SECONDS).put(rows())
    except (sqlite3.Error, OSError, ValueError, RLTrainingError) as error:
        warnings.warn(
            f"cannot write the index '{output_dir / FILE}' ({error}); the run itself is not affected, and "
            "`rl index rebuild` repairs the index",
            UserWarning,
            stacklevel=3,
        )


def all_rows(output_dir: str | Path, *, large: Iterable[str] = ()) -> tuple[list[Row], str | None]:
    """Every run of an output directory, oldest first, and a note if the index could not be used."""
    index = RunIndex(output_dir)
    if not index.path.exists() and not directories(index.output_dir):
        return [], None
    try:
        return index.current_rows(large=large), None
    except (sqlite3.Error, OSError) as error:
        rows = by_age(scan(index.output_dir, config="config" in set(large)))
        state = disk_state(index.output_dir)
        cure = "" if state else "; `rl index rebuild` repairs it"
        why = f"the index '{index.path}' cannot be used ({state or error})"
        return rows, f"{why}; read the run directories instead{cure}"


def _encoded(row: Mapping[str, Any]) -> Row:
    """Lists and mappings as JSON; lone surrogates, which SQLite cannot store, as question marks."""
    texts = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}
    return {
        name: value.encode(errors="replace").decode() if isinstance(value, str) else value
        for name, value in texts.items()
    }


def _decoded(row: Row) -> Row:
    row["tags"] = json.loads(row["tags"]) if row["tags"] not in (None, "[]") else []
    row["dirty"] = None if row["dirty"] is None else bool(row["dirty"])
    for name in LARGE:
        if name in row:
            row[name] = json.loads(row[name] or "{}")
    return row


# -- SQL --------------------------------------------------------------------------------------------------------------


def _put(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    updates = [f'"{name}" = excluded."{name}"' for name in COLUMNS if name not in ("directory", *FROM_CONFIG)]
    updates += [f'"{name}" = COALESCE(excluded."{name}", "{name}")' for name in FROM_CONFIG]
    query = (
        f"INSERT INTO runs ({_names(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
        f"ON CONFLICT (directory) DO UPDATE SET {', '.join(updates)}"
    )
    encoded = map(_encoded, rows)
    connection.executemany(query, ([row.get(name) for name in COLUMNS] for row in encoded))


def _stored_columns(connection: sqlite3.Connection) -> set[str]:
    """The columns of the file; one of an older version lacks the newest."""
    return {name for _, name, *_ in connection.execute("PRAGMA table_info(runs)")}


def _add_columns(connection: sqlite3.Connection) -> None:
    """Add the columns that an older version did not have; that version still reads and writes the file."""
    stored = _stored_columns(connection)
    for name, kind in COLUMNS.items():
        if stored and name not in stored:
            connection.execute(f'ALTER TABLE runs ADD COLUMN "{name}" {kind}')


def _extracted(kind: str, value: Any) -> Any:
    """A value from json_extract: SQLite gives true as 1, and lists and objects as their JSON."""
    if kind in ("object", "array"):
        return json.loads(value)
    return bool(value) if kind in ("true", "false") else value


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _keep_journal(connection: sqlite3.Connection, timeout: float) -> str:
    """Switch to the classic journal, whose locks a network file system knows.

    Leaving write-ahead logging takes the file alone, and SQLite fails at once where another connection has it open,
    whatever its own timeout: hence the loop.
    """
    until = time.monotonic() + timeout
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _write_ahead(connection: sqlite3.Connection) -> str:
    """Switch to write-ahead logging, with which readers and a writer do not block each other."""
    try:
        return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
    except sqlite3.OperationalError:  # no shared memory on this file system
        return _keep_journal(connection, 0.0)
