"""A callback that writes down how much memory the process has, for a test that reads it from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from rl_training.training.callbacks import Callback


class MemoryLog(Callback):
    """After every step: env steps so far and resident bytes, one line each."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.process = psutil.Process()

    def on_step(self, trainer: Any, report: Any) -> None:
        with self.path.open("a") as file:
            file.write(f"{report.after.env_steps} {self.process.memory_info().rss}\n")
