"""A callback that takes the run's directory away while the run goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rl_training import Callback


class TakeAway(Callback):
    """After `at` env steps: `rename` the only run in `runs` to `aside`, `delete` it, `replace` it by another folder."""

    def __init__(self, runs: str, aside: str, how: str, at: int) -> None:
        self.runs, self.aside, self.how, self.at = Path(runs), Path(aside), how, at

    def on_step(self, trainer: Any, report: Any) -> None:
        if not report.before.env_steps < self.at <= report.after.env_steps or self.how == "nothing":
            return
        run = next((path for path in self.runs.iterdir() if path.is_dir()), None)
        if run is None:  # resumed elsewhere
            return
        if self.how == "delete":
            shutil.rmtree(run)
            return
        run.rename(self.aside)
        if self.how == "replace":
            run.mkdir()
            (run / "run.json").write_text('{"id": "somebody else"}')
            (run / "checkpoints").mkdir()
