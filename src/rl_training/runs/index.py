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

from rl_training.runs.holder import living_holder
from rl_training.runs.names import INDEX
from rl_training.runs.recipe import recipe_sha256
from rl_training.system.atomic_io import disk_state, temporary_path
from rl_training.system.file_systems import is_network
from rl_training.system.json_lines import tail_rows
from rl_training.types import RLTrainingError, RunError

Row = dict[str, Any]
"""One run: every column of `COLUMNS` by name; `tags` is a list, `results` and `config` are mappings."""

FILE = INDEX
INDEX_VARIABLE = "RL_TRAINING_INDEX"
"""Environment variable: 0 in runs whose parent, on another host, writes their rows."""
SCHEMA = 1
RUN_SECONDS = 5.0
"""How long a run waits for the database lock; then it warns and continues."""
COLUMNS = {
    "directory": "TEXT PRIMARY KEY",
    "id": "TEXT",
    "name": "TEXT",
    "status": "TEXT",
    "algorithm": "TEXT",
    "environment": "TEXT",
    "seed": "INTEGER",
    "tags": "TEXT",
    "group": "TEXT",
    "sweep": "TEXT",
    "parent": "TEXT",
    "started": "TEXT",
    "ended": "TEXT",
    "exit_code": "INTEGER",
    "git": "TEXT",
    "dirty": "INTEGER",
    "config_sha256": "TEXT",
    "recipe_sha256": "TEXT",
    "notes": "TEXT",
    "env_steps": "INTEGER",
    "reward": "REAL",
    "loss": "REAL",
    "seconds": "REAL",
    "cleaned": "TEXT",
    "results": "TEXT",
    "config": "TEXT",
}
LARGE = ("results", "config")
"""Columns that are read only on request."""
FROM_CONFIG = ("recipe_sha256", "config")
"""Columns that are derived from the config alone; a row without them keeps the stored ones."""
STATE = tuple(name for name in COLUMNS if name not in FROM_CONFIG)
"""Columns that may change during a run."""
REWARDS = ("eval/return_mean", "rollout/return_mean")
"""The metrics behind `reward`: the first of these that a run has."""
UNSETTLED = ("running", "killed")
"""States that may have changed since the row was written: a killed run cannot update it, and may be resumed."""
OTHER_FOLDERS = ("groups", "sweeps", "archives")
"""Folders of an output directory that are not runs."""


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
            return _by_age(scan(self.output_dir, config="config" in wanted))
        changed, gone = self._changes()
        merged = {row["directory"]: row for row in self.rows(large=wanted) if row["directory"] not in gone}
        left_out = [name for name in LARGE if name not in wanted]
        for row in changed:
            config = row["config"] if row["config"] is not None else merged.get(row["directory"], {}).get("config")
            fresh = {**row, "config": config or {}}
            merged[row["directory"]] = {name: value for name, value in fresh.items() if name not in left_out}
        return _by_age(merged.values())

    def _changes(self) -> tuple[list[Row], set[str]]:
        """Rows that differ from the stored ones, and the names of directories that are gone."""
        with self._open() as connection:
            known = {name for (name,) in connection.execute("SELECT directory FROM runs")}
            stored = _stored_columns(connection)
            names = ", ".join(f'"{name}"' if name in stored else "NULL" for name in STATE)
            query = f"SELECT {names} FROM runs WHERE status IN {UNSETTLED}"
            unsettled = {values[0]: values for values in connection.execute(query)}
        present = _directories(self.output_dir)
        changed = _described(self.output_dir, [name for name in present if name not in known])
        for row in _described(self.output_dir, [name for name in present if name in unsettled], config=False):
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
    _store(output_dir, lambda: _described(output_dir, [run.name for run in runs]))


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
    if not index.path.exists() and not _directories(index.output_dir):
        return [], None
    try:
        return index.current_rows(large=large), None
    except (sqlite3.Error, OSError) as error:
        rows = _by_age(scan(index.output_dir, config="config" in set(large)))
        state = disk_state(index.output_dir)
        cure = "" if state else "; `rl index rebuild` repairs it"
        why = f"the index '{index.path}' cannot be used ({state or error})"
        return rows, f"{why}; read the run directories instead{cure}"


def _by_age(rows: Iterable[Row]) -> list[Row]:
    """Rows in the order of the index: oldest first."""
    return sorted(rows, key=lambda row: (row["started"] or "", row["directory"]))


def scan(output_dir: Path, *, config: bool) -> list[Row]:
    """A row for every run directory, read from the directories."""
    return _described(output_dir, _directories(output_dir), config=config)


def describe(run: Path, *, config: bool = True) -> Row:
    """The row of a run, read from its directory; RunError if that is not a run."""
    from rl_training.runs.directory import RunDir

    info = RunDir(run).info()
    status = _status(run, info.get("status"))
    results = _results(run, is_over=status in ("finished", "stopped"))
    tree = _config(run) if config or "algo" not in info else {}
    facts = {**tree, **info}  # runs of older versions have algo, env_id, ... only in their config
    git = info.get("git")
    row: Row = {
        "directory": run.name,
        "status": status,
        "algorithm": facts.get("algo"),
        "environment": facts.get("env_id"),
        "tags": [tag for tag in _listed(facts.get("tags")) if isinstance(tag, str)],
        "git": git.get("commit") if isinstance(git, dict) else None,
        "dirty": git.get("dirty") if isinstance(git, dict) else None,
        "env_steps": results.get("env_steps"),
        "reward": next((results[name] for name in REWARDS if results.get(name) is not None), None),
        "loss": results.get("train/loss"),
        "seconds": results.get("time/elapsed_seconds"),
        "recipe_sha256": recipe_sha256(tree) if config else None,
        "results": results,
        "config": tree if config else None,
    }
    return {name: _typed(row.get(name, facts.get(name)), kind) for name, kind in COLUMNS.items()}


# -- one row ----------------------------------------------------------------------------------------------------------


def _directories(output_dir: Path) -> list[str]:
    """Names of the folders that may be runs; only `describe` can tell."""
    try:
        with os.scandir(output_dir) as entries:
            names = [entry.name for entry in entries if entry.name[0] != "." and entry.is_dir()]
    except OSError:
        return []
    return sorted(name for name in names if name not in OTHER_FOLDERS)


def _described(output_dir: Path, names: Iterable[str], *, config: bool = True) -> list[Row]:
    rows = []
    for name in names:
        with suppress(RunError):  # not a run, or its run.json is damaged
            rows.append(describe(output_dir / name, config=config))
    return rows


def _status(run: Path, status: Any) -> Any:
    """The status of a run: one recorded as running that no process holds was killed."""
    if status != "running":
        return status
    return "killed" if living_holder(run / ".lock") is None else "running"


def _results(run: Path, *, is_over: bool) -> dict[str, Any]:
    """The final metrics of a run, or the newest ones if it has not finished."""
    found: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        final = json.loads((run / "metrics.json").read_bytes())
        found = final if isinstance(final, dict) else {}
    for row in () if is_over else tail_rows(run / "logs" / "metrics.jsonl"):
        found |= {name: value for name, value in row.items() if value is not None}
    return found


def _config(run: Path) -> dict[str, Any]:
    from rl_training.config.yaml_reader import read_yaml
    from rl_training.types import ConfigError

    try:
        return read_yaml(run / "configs" / "resolved.yaml")
    except (OSError, ConfigError):
        return {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _typed(value: Any, kind: str) -> Any:
    """A value converted to the type of its column, None if it has another one: files may contain anything."""
    if kind == "REAL":
        with suppress(OverflowError):  # an integer too large for a float
            return float(value) if isinstance(value, int | float) else None
        return None
    if kind == "INTEGER":
        return int(value) if isinstance(value, int) and abs(value) < 2**63 else None
    if isinstance(value, dict | list):
        return value
    return value if isinstance(value, str) else None


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
