"""How far a run is, read from its metrics log: for the table of a group and for `rl watch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.experiments.analysis.curves import EVALUATION, TRAINING
from rl_training.experiments.launching.group_display import Row
from rl_training.logging.progress_display import RateMeter
from rl_training.system.json_lines import TAIL_BYTES, number_of, steps_of, tail_rows

POLL_BYTES = 4096
"""Bytes of a running member's log that are read at a look."""
LATEST = ("env_steps", "updates", EVALUATION, TRAINING)
"""What is read of the newest rows."""


@dataclass
class RunProgress:
    """The newest counters and returns of one run, and its speed."""

    latest: dict[str, Any] = field(default_factory=dict)
    meter: RateMeter = field(default_factory=RateMeter)

    def read(self, log: Path) -> None:
        """Read the newest rows of a metrics log."""
        self.latest |= latest_progress(log)

    def measure(self, log: Path, now: float) -> None:
        """Read the newest rows and update the speed; `now` is a monotonic clock. Only a few rows: a thousand runs are
        looked at over a network."""
        self.latest |= latest_progress(log, POLL_BYTES)
        self.meter.update(steps_of(self.latest) or 0, now)

    def row(self, label: str, status: str, total: int | None, where: str = "") -> Row:
        """The run as a row of the table; speed and time left only while it runs."""
        steps = steps_of(self.latest)
        score = self.latest.get(EVALUATION, self.latest.get(TRAINING))
        if status != "running" or steps is None:
            return Row(label, status, steps, total, score, where=where)
        rate, left = self.meter.rate, self.meter.seconds_left(steps, total)
        return Row(label, status, steps, total, score, rate, left, where)


def latest_progress(path: Path, size: int = TAIL_BYTES) -> dict[str, Any]:
    """Counters and returns from the rows in the last `size` bytes of a metrics log."""
    found: dict[str, Any] = {}
    for row in tail_rows(path, size):
        found |= {name: row[name] for name in LATEST if number_of(row, name) is not None}
    return found
