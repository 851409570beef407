"""Learning curves read from run directories, and interpolated to a common grid so that runs can be aggregated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rl_training.system.json_lines import number_of, read_rows, steps_of
from rl_training.types import Array

MAX_POINTS = 200
"""Maximum number of points of a common grid: more than a plot can resolve."""
EVAL = "eval/"
"""Prefix of evaluation metrics, except in evals.jsonl."""
EVALUATION, TRAINING = "eval/return_mean", "rollout/return_mean"
"""The metrics by which a run is scored: its evaluations or, where it has none, its training episodes."""


@dataclass(frozen=True)
class Curve:
    """The curve of one run: values at increasing env steps."""

    steps: Array
    values: Array


def read_curve(run: Path, metric: str = EVALUATION) -> Curve:
    """The finite values of a metric in a run's log; empty where the run never logged it.

    The evaluation before training, which is only in evals.jsonl, becomes the first point of a non-empty curve.
    """
    points = dict(_points(run / "logs" / "metrics.jsonl", metric))
    if points and metric.startswith(EVAL):
        first = next(_points(run / "logs" / "evals.jsonl", metric.removeprefix(EVAL)), None)
        points |= {0: first[1]} if first is not None and first[0] == 0 else {}
    steps = sorted(points)
    return Curve(np.array(steps, np.int64), np.array([points[step] for step in steps], np.float64))


def _points(log: Path, name: str) -> Iterator[tuple[int, float]]:
    """Env steps and value of each row that has a finite value."""
    for row in read_rows(log):
        step, value = steps_of(row), number_of(row, name)
        if step is not None and value is not None:
            yield step, float(value)


def align(curves: Sequence[Curve]) -> tuple[Array, Array]:
    """Env steps (points,) that every curve covers, and the curves there by linear interpolation (runs, points).

    Runs that were logged at the same steps keep those steps. The grid ends where the shortest run does: the runs that
    continue beyond it are a biased sample, because runs often stop for a reason. Empty where no step is common to all.
    """
    first = max((curve.steps[0] for curve in curves if len(curve.steps)), default=0)
    last = min((curve.steps[-1] for curve in curves if len(curve.steps)), default=-1)
    if first > last or not all(len(curve.steps) for curve in curves):
        return np.empty(0), np.empty((len(curves), 0))
    within = [curve.steps[(curve.steps >= first) & (curve.steps <= last)] for curve in curves]
    if len(within[0]) <= MAX_POINTS and all(np.array_equal(steps, within[0]) for steps in within):
        grid = within[0].astype(np.float64)
    else:
        num_points = min(max(2, *map(len, within)), MAX_POINTS)
        grid = np.unique(np.linspace(first, last, num_points))
    return grid, np.array([np.interp(grid, curve.steps, curve.values) for curve in curves])
