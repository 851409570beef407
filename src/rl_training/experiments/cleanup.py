"""`ExperimentCleaner`: removes what old runs no longer need, and keeps what says what they were.

What is left of a cleaned run is its record, its config, its diff and its final metrics, in its own directory: the index
can still be rebuilt, and the run trained again. Tagged and running runs are never touched.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rl_training import index
from rl_training.atomic_io import discard
from rl_training.experiments.curves import read_rows
from rl_training.experiments.filters import find_key, sorted_rows
from rl_training.index import Row
from rl_training.run_names import readable_errors
from rl_training.runs import CLOCK_KEYS, RunDir
from rl_training.types import RunError

KEPT = frozenset({"run.json", "metrics.json", "git.diff", "configs", ".lock"})
"""What stays of a run."""


@dataclass(frozen=True)
class Removal:
    """What cleaning one run frees, or would."""

    run: Path
    bytes: int


class ExperimentCleaner:
    """Cleans the old runs of an output directory."""

    def __init__(self, output_dir: str | Path = "runs") -> None:
        self.output_dir = Path(output_dir).expanduser()

    def cleanup_old_experiments(
        self, *, keep_best_n: int = 10, keep_recent_days: float = 30, metric: str = "reward", dry_run: bool = False
    ) -> list[Removal]:
        """Clean every run that is none of: tagged, running, younger than `keep_recent_days`, among the best
        `keep_best_n` of its environment by `metric` (with a minus sign in front, low is good). With `dry_run` nothing
        is removed."""
        rows, _ = index.all_rows(self.output_dir, large=[find_key(metric.removeprefix("-")).column])
        kept = best_directories(rows, keep_best_n, metric)
        horizon = datetime.now(UTC) - timedelta(days=keep_recent_days)
        removals = []
        for row in rows:
            path = self.output_dir / row["directory"]
            is_old = is_before(row["ended"] or row["started"], horizon)
            if not is_old or row["directory"] in kept or row["tags"] or row["status"] == "running":
                continue
            if path.is_symlink() or not any(removable(path)):
                continue
            removal = Removal(path, sum(map(size_of, removable(path))))
            if dry_run or clean(RunDir(path)):
                removals.append(removal)
        return removals


def best_directories(rows: list[Row], count: int, metric: str) -> set[str]:
    """The best `count` runs of each environment; runs of different ones cannot be compared."""
    key = find_key(metric.removeprefix("-"))
    per_environment: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if isinstance(key.of(row), int | float):
            per_environment[row["environment"] or ""].append(row)
    return {row["directory"] for group in per_environment.values() for row in sorted_rows(group, metric)[:count]}


def clean(run: RunDir) -> bool:
    """Remove everything of one run that is not `KEPT`; False if it is in use or was tagged meanwhile."""
    lock = run.lock()
    try:
        lock.acquire()
    except RunError:
        return False
    try:
        if run.info().get("tags"):
            return False
        if not (run.path / "metrics.json").is_file():
            run.write_summary(last_metrics(run))
        # first of all: from now on nobody takes what is left for a run that can go on
        run.update_info(cleaned=datetime.now(UTC).isoformat(timespec="milliseconds"))
        with readable_errors(f"cannot clean '{run.path}'"):
            discard(list(removable(run.path)))
    finally:
        lock.release()
    index.record(run.path)
    return True


def last_metrics(run: RunDir) -> Row:
    """The newest value of every metric in a run's log."""
    newest: Row = {}
    for row in read_rows(run.logs / "metrics.jsonl"):
        newest |= {name: value for name, value in row.items() if not name.startswith(CLOCK_KEYS)}
    return newest


def removable(run: Path) -> Iterator[Path]:
    """The entries of a run directory that cleaning takes away."""
    yield from (run / name for name in sorted(os.listdir(run)) if name not in KEPT)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; links count for nothing."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size if not path.is_symlink() else 0
    return sum(size_of(path / name) for name in os.listdir(path))


def is_before(stamp: str | None, horizon: datetime) -> bool:
    """Whether a run's time lies before `horizon`; one without a readable time counts as new."""
    try:
        return datetime.fromisoformat(stamp or "") < horizon
    except (ValueError, TypeError):
        return False
