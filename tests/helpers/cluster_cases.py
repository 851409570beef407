"""Sweeps for the cluster tests: started as a user would, watched from outside, compared row for row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rl_training.distributed.local_cluster import LocalCluster
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.runs.directory import CLOCK_KEYS
from rl_training.types import RunError

STEPS = 49_152
"""Some ten seconds on a quiet core: time to be killed in."""
BASE: dict[str, Any] = {
    "algo": "ppo",
    "env_id": "CartPole-v1",
    "env": {"num_envs": 4},
    "hparams": {"num_steps": 32, "num_epochs": 4},
    "training": {
        "total_timesteps": STEPS,
        "checkpoint_frequency": 2048,
        "eval_frequency": 16384,
        "num_eval_episodes": 2,
    },
    "logging": {"tensorboard": False, "terminal": False},
}
RATES = [1e-3, 3e-4]
ATTEMPTS = 3
"""A raylet gives up when a busy machine does not start its helpers in time; then the start is tried again."""


def started(cluster: LocalCluster, nodes: int = 2) -> LocalCluster:
    """The cluster, up; after the last attempt the error ends with the raylet's log."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            cluster.up(nodes, 1)
            return cluster
        except RunError:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError


def write_sweep(folder: Path, steps: int = STEPS, **fields: Any) -> Path:
    """A sweep file of two trials."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "base.json").write_text(json.dumps({**BASE, "training": {**BASE["training"], "total_timesteps": steps}}))
    sweep = {"base_config": "base.json", "sweep": {"hparams.learning_rate": RATES}, "seeds": [0], **fields}
    (folder / "sweep.json").write_text(json.dumps(sweep))
    return folder / "sweep.json"


def rl(words: Iterable[str], folder: Path, **env: str) -> subprocess.Popen[str]:
    """An `rl` command in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "rl_training", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **env},
    )


def finished(process: subprocess.Popen[str], code: int = 0, seconds: float = 240) -> str:
    """What a command has printed; it must end with this code."""
    out, _ = process.communicate(timeout=seconds)
    assert process.returncode == code, out
    return out


def wait_until(what: Callable[[], Any], seconds: float = 120, pause: float = 0.1) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(pause)
    raise AssertionError("it did not happen in time")


def rows_of(sweep: Sweep) -> list[list[dict[str, Any]]]:
    """The metric rows of every member, without those of the clock."""
    found = []
    for member in sweep.members:
        path = sweep.output_dir / str(member.run) / "logs" / "metrics.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found.append([{k: v for k, v in row.items() if not k.startswith(CLOCK_KEYS)} for row in rows])
    return found


def scores_of(sweep: Sweep) -> dict[int, Any]:
    """Trial to its aggregate, from the summary."""
    summary = json.loads((sweep.path / "summary.json").read_text())
    return {trial["trial"]: trial["return"] for trial in summary["trials"]}
