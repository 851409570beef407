"""The clock of a run of this package: a callback that a contestant names in its config."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timing import Stopwatch

if TYPE_CHECKING:
    from rl_training.training.callbacks import Callback
    from rl_training.training.loop import Report, Trainer
else:  # in version 0.1.0, which before.py runs, the module had another place
    rooms = find_spec("rl_training.training") is not None
    Callback = import_module("rl_training.training.callbacks" if rooms else "rl_training.callbacks").Callback


class Laps(Callback):
    """Marks the end of every train step, and leaves the result in a file."""

    def __init__(self, path: str, warmup: int) -> None:
        self.path = Path(path)
        self.watch = Stopwatch(warmup)

    def on_step(self, trainer: Trainer, report: Report) -> None:
        self.watch.mark(report.after.env_steps)

    def on_end(self, trainer: Trainer) -> None:
        self.path.write_text(json.dumps(self.watch.result()))


def timed(settings: dict[str, Any], laps: Path, *, threads: int = 1) -> dict[str, Any]:
    """What the config of every timed run has in common: the clock, its budget, and nothing that is written on the way
    but metrics."""
    return {
        "seed": settings["seed"],
        "output_dir": settings["scratch"],
        "training": {
            "total_timesteps": settings["total_timesteps"],
            "num_eval_episodes": 0,
            "checkpoint_frequency": 0,
            "num_threads": threads,
        },
        "logging": {"terminal": False, "tensorboard": False},
        "callbacks": [{"name": "laps:Laps", "kwargs": {"path": str(laps), "warmup": settings["warmup"]}}],
    }
