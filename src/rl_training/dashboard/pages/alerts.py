"""Alerts of all runs together, newest first. Logs are read again only where they have changed."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from rl_training.dashboard.pages.run import alerts
from rl_training.dashboard.reading.tables import RunTable

PER_RUN = 20


class Alerts:
    """The alerts of the runs of a table."""

    def __init__(self, table: RunTable) -> None:
        self.table = table
        self._known: dict[Path, tuple[float, int, list[dict[str, Any]]]] = {}
        self._lock = threading.Lock()

    def newest(self, limit: int) -> dict[str, Any]:
        """The newest alerts, those of the run whose log changed last first, and in how many runs there are any."""
        found: list[tuple[float, str, dict[str, Any]]] = []
        present = set()
        for ref in self.table.all():
            log = ref.path / "logs" / "alerts.jsonl"
            try:
                state = os.stat(log)
            except OSError:
                continue
            present.add(log)
            if state.st_size:
                found += [(state.st_mtime, ref.key, alert) for alert in self._read(log, state.st_mtime, state.st_size)]
        with self._lock:
            self._known = {log: known for log, known in self._known.items() if log in present}
        found.sort(key=lambda one: -one[0])
        shown = [{"run": key, "time": when, **alert} for when, key, alert in found[:limit]]
        return {"alerts": shown, "total": len(found), "runs": len({key for _, key, _ in found})}

    def _read(self, log: Path, changed: float, size: int) -> list[dict[str, Any]]:
        with self._lock:
            known = self._known.get(log)
        if known is None or known[:2] != (changed, size):
            known = (changed, size, alerts(log.parent.parent)[:PER_RUN])
            with self._lock:
                self._known[log] = known
        return known[2]
