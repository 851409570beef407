"""`ExperimentCleaner`: removes checkpoints and logs of old runs, and keeps what documents them.

A cleaned run keeps its record, config, diff and final metrics in its own directory: the index can still be rebuilt, and
the run trained again. Tagged and running runs are never touched. Cleaning works on a full disk, when it is most needed.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rl_training.experiments.keeping.filters import find_key, sorted_rows
from rl_training.runs import index
from rl_training.runs.directory import CLOCK_KEYS, RunDir
from rl_training.runs.row import Row
from rl_training.system.atomic_io import fault_point
from rl_training.system.json_lines import read_rows
from rl_training.types import RunError

KEPT = frozenset({"run.json", "metrics.json", "git.diff", "configs", ".lock"})
"""Files and folders of a run that cleaning keeps."""


@dataclass(frozen=True)
class Removal:
    """The result of cleaning one run: bytes freed, or that would be freed in a dry run."""

    run: Path
    bytes: int
    problem: str = ""
    """Why it was not cleaned completely; empty if it was."""


class ExperimentCleaner:
    """Cleans the old runs of an output directory."""

    def __init__(self, output_dir: str | Path = "runs") -> None:
        self.output_dir = Path(output_dir).expanduser()

    def cleanup_old_experiments(
        self, *, keep_best_n: int = 10, keep_recent_days: float = 30, metric: str = "reward", dry_run: bool = False
    ) -> list[Removal]:
        """Clean all runs except those that are tagged, running, younger than `keep_recent_days`, or among the best
        `keep_best_n` of their environment by `metric` (a leading minus sign means that lower is better).

        With `dry_run` nothing is removed. Failures are reported as `problem` of a Removal.
        """
        rows, _ = index.all_rows(self.output_dir, large=[find_key(metric.removeprefix("-")).column])
        kept = best_directories(rows, keep_best_n, metric)
        horizon = datetime.now(UTC) - timedelta(days=keep_recent_days)
        removals = []
        for row in rows:
            path = self.output_dir / row["directory"]
            is_old = is_before(row["ended"] or row["started"], horizon)
            if not is_old or row["directory"] in kept or row["tags"] or row["status"] == "running":
                continue
            try:
                if path.is_symlink() or not any(removable(path)):
                    continue
                removals.append(Removal(path, removable_bytes(path)) if dry_run else clean(RunDir(path)))
            except OSError as error:  # a folder without read permission
                removals.append(Removal(path, 0, f"it cannot be read: {error.strerror}"))
        return removals


def best_directories(rows: list[Row], count: int, metric: str) -> set[str]:
    """The best `count` runs of each environment, since scores of different environments cannot be compared."""
    key = find_key(metric.removeprefix("-"))
    per_environment: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if isinstance(key.of(row), int | float):
            per_environment[row["environment"] or ""].append(row)
    return {row["directory"] for group in per_environment.values() for row in sorted_rows(group, metric)[:count]}


def clean(run: RunDir) -> Removal:
    """Remove everything of one run that is not in `KEPT`, as far as possible.

    The run is marked as cleaned first, so that an interrupted cleanup does not leave a run that seems resumable. Where
    the disk is too full to write the mark, space is freed first.
    """
    lock = run.lock(anonymous=True)
    try:
        lock.acquire()
    except RunError as error:
        return Removal(run.path, 0, str(error))
    before = removable_bytes(run.path)
    problems: list[str] = []
    try:
        if run.info().get("tags"):
            return Removal(run.path, 0, "it is tagged")
        mark(run, problems)
        problems += remove(removable(run.path))
    except RunError as error:
        problems.append(reason_of(error))
    finally:
        lock.release()
    removal = Removal(run.path, before - removable_bytes(run.path), in_short(problems))
    if removal.bytes:
        index.record(run.path)
    return removal


def mark(run: RunDir, problems: list[str]) -> None:
    """Record the final metrics, if the run has none yet, and that it is cleaned; RunError where that fails.

    On a full disk, files are removed in stages until writing succeeds: first everything but the logs, then the logs
    except the metrics, then the metrics.
    """
    summary = None if (run.path / "metrics.json").is_file() else last_metrics(run)
    metrics = run.logs / "metrics.jsonl"
    stages = (
        lambda: [path for path in removable(run.path) if path != run.logs],
        lambda: [path for path in sorted(run.logs.glob("*")) if path != metrics],
        lambda: [metrics],
    )
    for stage in (*stages, None):
        try:
            if summary is not None:
                run.write_summary(summary)
            run.update_info(cleaned=datetime.now(UTC).isoformat(timespec="milliseconds"))
            return
        except RunError as error:
            if stage is None or not is_full(error):
                raise
        problems += remove(stage())


def remove(paths: Iterable[Path]) -> list[str]:
    """Remove files, links and folders as far as possible; returns what could not be removed, with the reason."""
    problems: list[str] = []

    def note(function: object, path: str, found: tuple[Any, BaseException, Any]) -> None:
        error = found[1]
        if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            problems.append(f"{Path(path).name} cannot be removed: {error.strerror}")

    for path in paths:
        try:
            fault_point("remove", path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, onerror=note)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            problems.append(f"{path.name} cannot be removed: {error.strerror}")
    return problems


def in_short(problems: list[str]) -> str:
    """The first problem, and the number of further ones."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}" if problems else ""


def reason_of(error: RunError) -> str:
    """The system's message if an OSError is the cause; the advice in a RunError is for writing, not for cleaning."""
    cause = error.__cause__
    if isinstance(cause, OSError):
        return f"it cannot be changed: {cause.strerror}"
    return str(error)


def is_full(error: RunError) -> bool:
    """Whether the disk or the quota is full."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def last_metrics(run: RunDir) -> Row:
    """The last value of every metric in a run's log, without clock metrics."""
    newest: Row = {}
    for row in read_rows(run.logs / "metrics.jsonl"):
        newest |= {name: value for name, value in row.items() if not name.startswith(CLOCK_KEYS)}
    return newest


def removable(run: Path) -> Iterator[Path]:
    """The entries of a run directory that cleaning removes."""
    yield from (run / name for name in sorted(os.listdir(run)) if name not in KEPT)


def removable_bytes(run: Path) -> int:
    """Size of what cleaning removes."""
    return sum(map(size_of, removable(run)))


def size_of(path: Path) -> int:
    """Size of a file, or of all files in a folder; links count as 0."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size if not path.is_symlink() else 0
    return sum(size_of(path / name) for name in os.listdir(path))


def is_before(stamp: str | None, horizon: datetime) -> bool:
    """Whether a run's time is before `horizon`; a run without a readable time counts as new."""
    try:
        return datetime.fromisoformat(stamp or "") < horizon
    except (ValueError, TypeError):
        return False
