"""Follows running experiments from outside, by reading their files; it cannot disturb them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.experiments.launching.group_display import GroupView, Row
from rl_training.experiments.launching.progress import RunProgress
from rl_training.runs.directory import RunDir
from rl_training.runs.row import OTHER_FOLDERS, describe
from rl_training.system.file_systems import host_name
from rl_training.system.json_lines import steps_of, tail_rows
from rl_training.types import RLTrainingError, RunError


@dataclass
class Watched:
    """One run that is followed."""

    run: RunDir
    total: int | None = None
    status: str = "running"
    where: str = ""
    """Host and process, node or job that trains it, or did last."""
    reading: RunProgress = field(default_factory=RunProgress)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    """Alerts seen so far, oldest first."""

    @property
    def progress(self) -> dict[str, Any]:
        """The newest counters and returns."""
        return self.reading.latest

    def look(self, now: float) -> list[dict[str, Any]]:
        """Read the new rows; returns the new alerts."""
        self.reading.measure(self.run.logs / "metrics.jsonl", now)
        rows = tail_rows(self.run.logs / "alerts.jsonl")
        new = [row for row in rows if row not in self.alerts]
        self.alerts += new
        with suppress(RunError):  # the directory is being removed or created
            status = str(describe(self.run.path, config=False)["status"])
            if status != self.status or not self.where:
                self.where = str(self.run.info().get("where") or "")
            self.status = status
        return new

    def row(self) -> Row:
        elsewhere = self.status == "running" and not self.where.startswith(f"{host_name()}:")
        return self.reading.row(self.run.path.name, self.status, self.total, self.where if elsewhere else "")


class Watcher:
    """Follows the given runs until they have ended or, without any, all that are running in `output_dir`."""

    def __init__(self, output_dir: str | Path, view: GroupView, runs: Sequence[RunDir] = ()) -> None:
        self.output_dir = Path(output_dir).expanduser()
        self.view = view
        self.watched = {run.path: watch(run) for run in runs}
        self.follows_all = not runs
        self._known: set[str] = set()

    def follow(self, interval: float) -> None:
        """Look every `interval` seconds until no watched run is running."""
        try:
            while self.look():
                time.sleep(interval)
        finally:
            self.view.close()

    def look(self) -> bool:
        """Update all of them once; returns whether one is still running."""
        if self.follows_all:
            self._find_new()
        now = time.monotonic()
        for path, one in self.watched.items():
            before = one.status
            for alert in one.look(now):
                self.view.message(f"{path.name}: {alert_text(alert)}")
            if one.status != before:
                self.view.event(f"{path.name}: {', '.join([one.status, *one.row().facts()])}")
        self.view.show(self.rows())
        return any(one.status == "running" for one in self.watched.values())

    def rows(self) -> list[Row]:
        return [one.row() for one in self.watched.values()]

    def _find_new(self) -> None:
        """Add the runs that are being trained now and were not seen before."""
        for lock in sorted(self.output_dir.glob("*/.lock")):
            folder = lock.parent
            if folder.name in self._known or folder.name in OTHER_FOLDERS:
                continue
            with suppress(RunError):
                if describe(folder, config=False)["status"] == "running":
                    self._known.add(folder.name)
                    self.watched[folder.absolute()] = watch(RunDir(folder))


def watch(run: RunDir) -> Watched:
    """A run to follow, with its budget where its config can be read."""
    total = None
    with suppress(RLTrainingError):
        total = run.info().get("total_timesteps") or run.config(secrets=False).training.budget
    return Watched(run, total)


def alert_text(alert: dict[str, Any]) -> str:
    """A row of alerts.jsonl as one line of text."""
    return f"alert {alert.get('rule')}: {alert.get('message')} (at {steps_of(alert) or 0:,} env steps)"
