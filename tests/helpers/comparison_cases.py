"""Runs with known scores and curves, written by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from run_cases import fake_run

from rl_training.experiments.analysis.compare import Comparison, compare
from rl_training.experiments.analysis.entries import find_entries

POINTS = (1000, 2000, 3000)


def scored_run(
    output_dir: Path,
    number: int,
    values: Sequence[float],
    *,
    algo: str = "ppo",
    env_id: str = "CartPole-v1",
    seed: int = 0,
) -> Path:
    """A run that was evaluated three times, with two episodes each a point below and above their mean."""
    run = fake_run(output_dir, number, reward=values[-1], steps=POINTS[-1], algo=algo, env_id=env_id, seed=seed)
    rows = [
        {"env_steps": step, "eval/return_mean": value, "train/loss": 1.0 / value}
        for step, value in zip(POINTS, values, strict=True)
    ]
    (run / "logs" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evals = [
        {"env_steps": step, "returns": [value - 1, value + 1], "lengths": [5, 5]}
        for step, value in zip(POINTS, values, strict=True)
    ]
    (run / "logs" / "evals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in evals))
    metrics = json.loads((run / "metrics.json").read_text())
    metrics |= {"train/loss": 1.0 / values[-1], "time/elapsed_seconds": 10.0 + seed, "system/peak_memory_bytes": 5e8}
    (run / "metrics.json").write_text(json.dumps(metrics))
    return run


def two_algorithms(output_dir: Path, *, tasks: Sequence[str] = ("CartPole-v1",)) -> None:
    """ppo ends at 40, 50, 60, 70 and a2c at 10, 20, 30, 60, ten times as much on every further task."""
    number = 0
    for scale, task in enumerate(tasks):
        for algo, finals in (("ppo", (40, 50, 60, 70)), ("a2c", (10, 20, 30, 60))):
            for seed, final in enumerate(finals):
                values = [final * 10.0**scale * share for share in (0.25, 0.5, 1.0)]
                scored_run(output_dir, number, values, algo=algo, env_id=task, seed=seed)
                number += 1


def by_algorithm(output_dir: Path, *metrics: str, threshold: float | None = None) -> Comparison:
    selection = find_entries(["status=finished"], output_dir, by=["algorithm"])
    return compare(selection, metrics or ("reward",), threshold=threshold)
