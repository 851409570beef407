"""Sweeps and searches for the page: trials with their scores, progress, where each member runs, importance of keys."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.dashboard.reading.tables import NoRunError, Root, RunTable
from rl_training.experiments.launching.sweeps import Sweep, summarize_sweep
from rl_training.experiments.launching.tuning import JOURNAL, RECORD, Tuning
from rl_training.system.terminal_text import printable
from rl_training.types import RLTrainingError, RunError

FRESH_SECONDS = 3.0
"""How long an opened sweep is shown without looking at its runs again."""
MAX_LISTED = 200


class Sweeps:
    """The sweeps and searches of all output directories."""

    def __init__(self, table: RunTable) -> None:
        self.table = table
        self._known: dict[Path, tuple[float, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def paths(self) -> dict[str, tuple[Root, Path]]:
        """Every sweep by its key, newest first."""
        found: dict[str, tuple[Root, Path]] = {}
        for root in self.table.roots:
            for path in reversed(Sweep.directory.all_in(root.path / Sweep.folder)):
                if not path.is_symlink():
                    found.setdefault(root.key(path.name), (root, path))
        return found

    def listing(self) -> dict[str, Any]:
        """One line per sweep, and how many there are."""
        paths = self.paths()
        sweeps: list[dict[str, Any]] = []
        for key, (root, path) in list(paths.items())[:MAX_LISTED]:
            try:
                found = self._read(root, path)
            except RunError as error:
                sweeps.append({"key": key, "error": str(error)})
                continue
            kept = ("name", "algorithm", "environment", "started", "kind", "metric", "progress")
            sweeps.append({"key": key, **{name: found[name] for name in kept}, "trials": len(found["trials"])})
        return {"sweeps": sweeps, "all": len(paths)}

    def answer(self, key: str) -> dict[str, Any]:
        """One sweep with all its trials; NoRunError where there is none of this key."""
        found = self.paths().get(key)
        if found is None:
            raise NoRunError(f"no sweep '{printable(key)[:200]}'; it may have been deleted or renamed")
        return {"key": key, **self._read(*found)}

    def _read(self, root: Root, path: Path) -> dict[str, Any]:
        with self._lock:
            known = self._known.get(path)
        if known is not None and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        found = self._describe(root, path)
        with self._lock:
            self._known[path] = (time.monotonic(), found)
        return found

    def _describe(self, root: Root, path: Path) -> dict[str, Any]:
        sweep = Sweep.open(path)
        summary = summarize_sweep(sweep)
        rows = {ref.path.name: ref for ref in self.table.all() if ref.row["root"] == root.number}
        for trial in summary["trials"]:
            for run in trial["runs"]:
                ref = rows.get(run["run"] or "")
                run["key"] = None if ref is None else ref.key
                run["seconds"] = None if ref is None else ref.row["seconds"]
                run["live_return"] = None if ref is None else ref.row["reward"]
        search = read_search(sweep) if (path / RECORD).is_file() else None
        return {
            "name": sweep.info.name or sweep.info.id,
            "path": str(path),
            "algorithm": sweep.info.algo,
            "environment": sweep.info.env_id,
            "started": sweep.info.started,
            "kind": "sweep" if search is None else "search",
            "metric": summary["metric"],
            "keys": list(dict.fromkeys(key for trial in sweep.info.trials for key in trial)),
            "trials": summary["trials"],
            "progress": progress(sweep, summary),
            "places": places(sweep),
            "search": search,
            "argv": sweep.info.argv,
        }


def progress(sweep: Sweep, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Members by status, and the time left if the others take as long as those that have finished."""
    counts = Counter(member.status for member in sweep.members)
    done = [
        run["seconds"]
        for trial in summary["trials"]
        for run in trial["runs"]
        if run["status"] == "finished" and isinstance(run.get("seconds"), int | float)
    ]
    left = len(sweep.members) - counts["finished"] - counts["failed"]
    at_once = max(sweep.info.jobs or 1, 1)
    seconds = sum(done) / len(done) * left / at_once if done and left else None
    return {"counts": dict(counts), "members": len(sweep.members), "seconds_left": seconds}


def places(sweep: Sweep) -> list[dict[str, Any]]:
    """Where the members run now: host and process."""
    found = []
    for member in sweep.members:
        if member.status == "running":
            holder = sweep.busy(member)
            where = {"host": None, "pid": None} if holder is None else {"host": holder.host, "pid": holder.pid}
            found.append({"trial": member.trial, "seed": member.seed, "run": member.run, **where})
    return found


def read_search(sweep: Sweep) -> dict[str, Any]:
    """State of a search: its trials by the study's own record, and the importance of each key.

    The study is opened on a copy of its journal, because opening it writes into the file.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="rl-dashboard-") as folder:
            copy = Path(folder) / sweep.path.name
            copy.mkdir()
            for name in (JOURNAL, RECORD):
                if (sweep.path / name).is_file():
                    shutil.copyfile(sweep.path / name, copy / name)
            tuning = Tuning.open_copy(sweep, copy)
            trials = tuning.trials()
            return {
                "direction": tuning.config.direction,
                "metric": tuning.config.metric,
                "aggregate": tuning.config.aggregate,
                "num_trials": tuning.config.num_trials,
                "trials": trials,
                "importance": tuning.importance(),
            }
    except (RLTrainingError, OSError, ValueError, KeyError) as error:
        return {"error": str(error), "trials": [], "importance": {}}
