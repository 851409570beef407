"""Compares runs: scores with intervals, probability of improvement, steps to a threshold, cost.

Computed from rows of the index and from logs, into the records of `comparison`; nothing here prints or draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from typing import Any

import numpy as np

from rl_training.experiments.analysis.comparison import (
    Comparison,
    Cost,
    Improvement,
    MetricResult,
    Profile,
    Summary,
)
from rl_training.experiments.analysis.config_differences import config_differences, mixed
from rl_training.experiments.analysis.curves import Curve, align
from rl_training.experiments.analysis.entries import Entry, Run, Selection
from rl_training.experiments.analysis.metrics.metric import Metric, parse_metric
from rl_training.experiments.analysis.statistics import (
    curve_band,
    estimate,
    iqm,
    mean,
    median,
    performance_profile,
    probability_of_improvement,
)
from rl_training.experiments.keeping.filters import find_key
from rl_training.seeding import stream
from rl_training.types import Array

__all__ = ["OVERALL", "Comparison", "compare", "parse_metric", "record", "steps_to"]

SCHEMA = 1
MAX_PAIRED = 10
"""Up to this many entries all pairs are compared; with more, the best with each of the others."""
MAX_FIELDS = 5
"""Number of fields named in a note."""
NUM_LEVELS = 101
OVERALL = "all environments"


def compare(
    selection: Selection, metrics: Sequence[str] = ("reward",), *, threshold: float | None = None
) -> Comparison:
    """Compare entries by metrics, with aliases as in `rl list`: `reward`, `loss`, `hns`, a logged name, a column.

    A leading minus sign means that lower is better, which is the default for losses. `threshold` is the score until
    which env steps are counted.
    """
    entries, notes = selection.entries, list(selection.notes)
    results = []
    for name in metrics:
        metric = parse_metric(name, [run for entry in entries for run in entry.runs])
        results.append(_compare_by(metric, entries, threshold, notes))
    lengths: dict[str, list[int]] = {}
    for run in (run for entry in entries for run in entry.runs):
        lengths.setdefault(run.axis, []).extend([run.length] if run.length else [])
    for axis, steps in lengths.items():
        if steps and max(steps) > 1.05 * min(steps):
            notes.append(f"the runs differ in length: {min(steps):,} to {max(steps):,} {axis}")
    if len(lengths) > 1:
        notes.append("some runs count env steps and some, which are offline, updates: their curves are drawn apart")
    for entry in entries:
        if fields := mixed(entry):
            shown = ", ".join(fields[:MAX_FIELDS]) + (", ..." if len(fields) > MAX_FIELDS else "")
            notes.append(f"{entry.label}: its own runs differ in {shown}")
    costs = tuple(_cost(entry) for entry in entries)
    return Comparison(entries, tuple(results), costs, tuple(notes), config_differences(entries))


def steps_to(curve: Curve, threshold: float, *, low_is_good: bool = False) -> float:
    """Env steps of the first logged point that reaches the threshold; infinite if none does."""
    good = curve.values <= threshold if low_is_good else curve.values >= threshold
    return float(curve.steps[good.argmax()]) if good.any() else math.inf


def record(comparison: Comparison) -> dict[str, Any]:
    """A comparison as plain values, as `--json` prints it."""
    return {
        "schema": SCHEMA,
        "environments": comparison.tasks,
        "entries": [
            {"label": entry.label, "runs": [run.path.name for run in entry.runs]} for entry in comparison.entries
        ],
        "metrics": [_metric_record(result) for result in comparison.metrics],
        "costs": [asdict(cost) for cost in comparison.costs],
        "notes": list(comparison.notes),
        "config_differences": {name: dict(values) for name, values in comparison.config_differences.items()},
    }


# -- one metric -------------------------------------------------------------------------------------------------------


def _compare_by(metric: Metric, entries: Sequence[Entry], threshold: float | None, notes: list[str]) -> MetricResult:
    runs = _scored(metric, entries, notes)
    scores = {place: np.array([score for _, score in found]) for place, found in runs.items()}
    curves = _curves(metric, runs, notes)
    thresholds = _thresholds(metric, runs, threshold) if curves else {}
    labels = list(dict.fromkeys(label for label, _ in scores))
    tasks = sorted({task for _, task in scores})
    summaries = [
        _with_steps(_summary(label, task, [scores[label, task]]), metric, thresholds, curves)
        for task in tasks
        for label in labels
        if (label, task) in scores
    ]
    common = [task for task in tasks if all((label, task) in scores for label in labels)]
    several = len(tasks) > 1
    if len(common) < len(tasks) and len(labels) > 1:
        notes.append(f"{len(common)} of {len(tasks)} environments are common to all entries; only those are aggregated")
    scaled = several and not metric.is_human_normalized
    good = _scaled(metric, scores) if scaled else {place: metric.oriented(values) for place, values in scores.items()}
    strata = {label: [good[label, task] for task in common] for label in labels if common}
    levels = _levels([values for tasks_of_one in strata.values() for values in tasks_of_one])
    return MetricResult(
        metric,
        tuple(summaries),
        tuple(_summary(label, OVERALL, strata[label]) for label in strata if several),
        thresholds,
        _improvements(labels, good),
        tuple((levels if scaled else metric.oriented(levels)).tolist()),
        tuple(_profile(label, strata[label], levels) for label in strata),
        curves,
        _axes(runs, curves),
    )


def _curves(
    metric: Metric, runs: Mapping[tuple[str, str], Sequence[tuple[Run, float]]], notes: list[str]
) -> dict[tuple[str, str], list[Curve]]:
    if metric.logged is None:
        return {}
    found: dict[tuple[str, str], list[Curve]] = {}
    for (label, task), scored in runs.items():
        axes = {run.axis for (_, other), group in runs.items() if other == task for run, _ in group}
        for run, _ in scored:
            where = f"{task} ({run.axis})" if len(axes) > 1 else task
            found.setdefault((label, where), []).append(metric.curve(run))
    curves = {place: [curve for curve in group if len(curve.steps)] for place, group in found.items()}
    if missing := sum(map(len, found.values())) - sum(map(len, curves.values())):
        notes.append(f"{missing} runs have no log of {metric.name} (cleaned up?): they are not in its curves")
    return curves


def _axes(
    runs: Mapping[tuple[str, str], Sequence[tuple[Run, float]]], curves: Mapping[tuple[str, str], Any]
) -> dict[str, str]:
    """What the curves of each panel are drawn over."""
    axes = {task: run.axis for (_, task), scored in runs.items() for run, _ in scored}
    apart = {f"{task} ({axis})": axis for task in axes for axis in ("env steps", "updates")}
    return {task: (axes | apart)[task] for _, task in curves}


def _scored(
    metric: Metric, entries: Sequence[Entry], notes: list[str]
) -> dict[tuple[str, str], list[tuple[Run, float]]]:
    """Runs with their scores by entry and environment; a note counts those without a score."""
    found: dict[tuple[str, str], list[tuple[Run, float]]] = {}
    for entry in entries:
        scores = [(run, metric.score(run)) for run in entry.runs]
        for run, score in scores:
            if score is not None:
                found.setdefault((entry.label, run.task), []).append((run, score))
        if missing := sum(score is None for _, score in scores):
            notes.append(f"{entry.label}: {missing} of {len(scores)} runs have no {metric.name}")
    return found


def _thresholds(
    metric: Metric, runs: Mapping[tuple[str, str], Sequence[tuple[Run, float]]], asked: float | None
) -> dict[str, float]:
    """Per environment: the threshold that was asked for, else the `stop_at_return` that all runs share, else the median
    final score of the weakest entry, which shows how much sooner the others reached it."""
    thresholds = {}
    for task in dict.fromkeys(task for _, task in runs):
        found = [scored for (_, place), scored in runs.items() if place == task]
        stops = {_stop_at_return(run) for scored in found for run, _ in scored}
        medians = [float(np.median([score for _, score in scored])) for scored in found]
        weakest = max(medians) if metric.low_is_good else min(medians)
        shared = next(iter(stops)) if len(stops) == 1 and metric.name == "reward" else None
        thresholds[task] = next(value for value in (asked, shared, weakest) if value is not None)
    return thresholds


def _stop_at_return(run: Run) -> float | None:
    value = find_key("training.stop_at_return").of(run.row)
    return float(value) if isinstance(value, int | float) else None


def _scaled(metric: Metric, scores: Mapping[tuple[str, str], Array]) -> dict[tuple[str, str], Array]:
    """Scores of each environment scaled from 0, its worst run, to 1, its best; 0.5 where all are equal."""
    scaled = {}
    for label, task in scores:
        together = metric.oriented(np.concatenate([values for (_, place), values in scores.items() if place == task]))
        low, width = together.min(), np.ptp(together)
        mine = metric.oriented(scores[label, task])
        scaled[label, task] = (mine - low) / width if width > 0 else np.full(len(mine), 0.5)
    return scaled


def _summary(label: str, task: str, strata: Sequence[Array]) -> Summary:
    middle_half, average, middle = (
        estimate(strata, statistic, rng=stream(0, "bootstrap")) for statistic in (iqm, mean, median)
    )
    return Summary(label, task, tuple(np.concatenate(strata).tolist()), middle_half, average, middle)


def _with_steps(
    summary: Summary,
    metric: Metric,
    thresholds: Mapping[str, float],
    curves: Mapping[tuple[str, str], Sequence[Curve]],
) -> Summary:
    found = curves.get((summary.entry, summary.task))
    if not found:
        return summary
    steps = [steps_to(curve, thresholds[summary.task], low_is_good=metric.low_is_good) for curve in found]
    middle = float(np.median(steps))
    reached = sum(map(math.isfinite, steps))
    return replace(summary, reached=reached, steps_to_threshold=middle if math.isfinite(middle) else None)


def _improvements(labels: Sequence[str], scores: Mapping[tuple[str, str], Array]) -> tuple[Improvement, ...]:
    """Probability of improvement of each pair of entries, on the environments that both have."""
    pairs = list(combinations(labels, 2))
    if len(labels) > MAX_PAIRED:
        everything = {label: np.concatenate([v for (one, _), v in scores.items() if one == label]) for label in labels}
        best = max(labels, key=lambda label: float(iqm(everything[label])))
        pairs = [(best, other) for other in labels if other != best]
    found = []
    for one, other in pairs:
        tasks = [task for label, task in scores if label == one and (other, task) in scores]
        if tasks:
            mine, theirs = ([scores[label, task] for task in tasks] for label in (one, other))
            found.append(Improvement(one, other, probability_of_improvement(mine, theirs, rng=stream(0, "bootstrap"))))
    return tuple(found)


def _levels(scores: Sequence[Array]) -> Array:
    if not scores:
        return np.empty(0)
    together = np.concatenate(scores)
    return np.linspace(together.min(), together.max(), NUM_LEVELS)


def _profile(label: str, strata: Sequence[Array], levels: Array) -> Profile:
    line, low, high = performance_profile(strata, levels, rng=stream(0, "bootstrap"))
    return Profile(label, tuple(line.tolist()), tuple(low.tolist()), tuple(high.tolist()))


def _cost(entry: Entry) -> Cost:
    rows = [run.row for run in entry.runs]
    seconds = [row["seconds"] for row in rows]
    speeds = [row["env_steps"] / row["seconds"] if row["env_steps"] and row["seconds"] else None for row in rows]
    memory = [row["results"].get("system/peak_memory_bytes") for row in rows]
    return Cost(entry.label, len(rows), *(_median(values) for values in (seconds, speeds, memory)))


def _median(values: Sequence[Any]) -> float | None:
    numbers = [value for value in values if isinstance(value, int | float)]
    return float(np.median(numbers)) if numbers else None


def _metric_record(result: MetricResult) -> dict[str, Any]:
    bands = []
    for (label, task), curves in result.curves.items():
        grid, values = align(curves)
        if len(grid):
            line, low, high = curve_band(values, rng=stream(0, "bootstrap"))
            axis = result.axes.get(task, "env steps").replace(" ", "_")
            arrays = {axis: grid, "iqm": line, "low": low, "high": high}
            bands.append({"entry": label, "task": task, **{name: array.tolist() for name, array in arrays.items()}})
    return {
        **asdict(result.metric),
        "summaries": [asdict(one) for one in result.summaries],
        "overall": [asdict(one) for one in result.overall],
        "thresholds": dict(result.thresholds),
        "improvements": [asdict(one) for one in result.improvements],
        "profile": {"levels": result.levels, "entries": [asdict(one) for one in result.profiles]},
        "curves": bands,
    }
