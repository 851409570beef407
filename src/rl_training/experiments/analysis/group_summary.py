"""Results of a group of seeds: `summary.json`, the learning curve, and the summary in the terminal.

All is read from the run directories, so a group that was killed and resumed has the same summary as an uninterrupted
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.experiments.analysis.curves import EVALUATION, TRAINING, read_curve
from rl_training.experiments.analysis.statistics import estimate
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.experiments.launching.member import Member, record_text
from rl_training.runs.names import readable_errors
from rl_training.seeding import stream
from rl_training.system.atomic_io import atomic_write
from rl_training.system.formatting import number_text

SCHEMA = 1
FEW_SEEDS = 5
"""With fewer seeds a 95% interval is much too narrow: with 3 seeds of a normal score it covers 75% (docs/groups.md)."""


def summarize(group: SeedGroup) -> dict[str, Any]:
    """The final score of every seed, and the aggregate over the finished ones."""
    metrics = {member.seed: group.final_metrics(member) for member in group.members}
    metric = scoring_metric(metrics.values())
    runs: list[dict[str, Any]] = [
        {
            "seed": member.seed,
            "run": member.run,
            "status": member.status,
            "env_steps": metrics[member.seed].get("env_steps"),
            "return": metrics[member.seed].get(metric),
        }
        for member in group.members
    ]
    scores = finished_scores(runs)
    return {
        "schema": SCHEMA,
        "group": group.info.id,
        "name": group.info.name,
        "algo": group.info.algo,
        "env_id": group.info.env_id,
        "metric": metric,
        "num_seeds": len(runs),
        "num_scores": len(scores),
        "return": aggregate(scores),
        "runs": runs,
    }


def scoring_metric(final_metrics: Iterable[Mapping[str, Any]]) -> str:
    """The metric that scores runs: the evaluation return if any run has one, else the training return."""
    return EVALUATION if any(EVALUATION in row for row in final_metrics) else TRAINING


def finished_scores(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """The final returns of the finished runs among the rows of a summary."""
    return [run["return"] for run in runs if run["status"] == "finished" and run["return"] is not None]


def aggregate(scores: Sequence[float]) -> dict[str, Any] | None:
    """IQM with its interval, mean, standard deviation, median and extremes over seeds; None without scores."""
    if not scores:
        return None
    values = np.array(scores, np.float64)
    return {
        "iqm": asdict(estimate([values], rng=stream(0, "bootstrap"))),
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else None,
        "median": float(np.median(values)),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def write_summary(group: SeedGroup) -> dict[str, Any]:
    """Compute `summary.json` and write it."""
    return write_summary_file(group.path, summarize(group))


def write_summary_file(folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """Write a summary as `<folder>/summary.json`; returns it."""
    with readable_errors(f"cannot write summary.json in '{folder}'"):
        atomic_write(folder / "summary.json", record_text(summary).encode())
    return summary


def plot_group(group: SeedGroup, metric: str) -> list[Path]:
    """Draw `plots/learning_curve.{png,svg}` of the finished members or, if none is, of all; returns the files written.

    ConfigError with the pip command where matplotlib is missing.
    """
    from rl_training.experiments.analysis.plots import learning_curve, save_figure

    members = [member for member in group.members if member.status == "finished"] or group.members
    found = [read_curve(group.output_dir / member.run, metric) for member in members if member.run is not None]
    curves = [curve for curve in found if len(curve.steps)]
    if not curves:
        return []
    title = f"{group.info.algo} on {group.info.env_id}, {len(curves)} seed{'s' if len(curves) > 1 else ''}"
    figure = learning_curve(curves, title, metric=metric)
    with readable_errors(f"cannot write a plot in '{group.plots}'"):
        return save_figure(figure, group.plots / "learning_curve")


def run_records(group: SeedGroup) -> list[dict[str, Any]]:
    """Every member for `--json`, as `rl train --json` prints a run, with seed and status."""
    return [_record(group, member) for member in group.members]


def _record(group: SeedGroup, member: Member) -> dict[str, Any]:
    metrics = group.final_metrics(member)
    run = None if member.run is None else (group.output_dir / member.run).absolute()
    step = None if run is None else CheckpointManager(run).latest_step()
    return {
        "seed": member.seed,
        "status": member.status,
        "exit_code": member.exit_code,
        "reason": member.reason,
        "run": run,
        "checkpoint": None if run is None or step is None else run / "checkpoints" / f"step_{step:012d}",
        "stop_reason": metrics.get("stop_reason"),
        "metrics": metrics,
    }


def aggregate_text(result: Mapping[str, Any] | None, count: int) -> str:
    """`IQM 487.2, 95% interval 470.1 to 499.0, mean 480.3 +- 12.0 over 5 seeds`."""
    if result is None:
        return "no seed is finished"
    iqm = result["iqm"]
    parts = [f"IQM {number_text(iqm['value'])}"]
    if iqm["low"] is not None:
        parts.append(f"{iqm['confidence']:.0%} interval {number_text(iqm['low'])} to {number_text(iqm['high'])}")
    spread = f" +- {number_text(result['std'])}" if result["std"] is not None else ""
    parts.append(f"mean {number_text(result['mean'])}{spread}")
    return f"{', '.join(parts)} over {count} seed{'s' if count > 1 else ''}"
