"""Statistics over runs: mean, median, IQM, probability of improvement, stratified bootstrap intervals. Pure NumPy.

Scores are one array of runs per task. A task is a stratum: the bootstrap resamples runs within each task, never across,
so an interval describes other seeds on these same tasks (Agarwal et al. 2021, arXiv:2108.13264).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rl_training.numerics import stable as numerics
from rl_training.types import Array

Statistic = Callable[[Array], Array]
"""A function from scores (..., n) to one number per row (...)."""

CONFIDENCE = 0.95
NUM_RESAMPLES = 5000
"""Enough that another random seed moves a bound by about 1% of the interval's width."""
CHUNK_VALUES = 2**22
"""Values resampled at a time; bounds the memory for thousands of runs."""


@dataclass(frozen=True)
class Estimate:
    """A value and its confidence interval; bounds are None for a single run."""

    value: float
    low: float | None
    high: float | None
    confidence: float = CONFIDENCE


def mean(scores: Array) -> Array:
    return np.asarray(scores.mean(axis=-1))


def median(scores: Array) -> Array:
    return np.asarray(np.median(scores, axis=-1))


def iqm(scores: Array) -> Array:
    """Interquartile mean: a quarter of the scores, rounded down, is left out at each end."""
    return numerics.iqm(scores, axis=-1)


def estimate(
    strata: Sequence[npt.ArrayLike],
    statistic: Statistic = iqm,
    *,
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
) -> Estimate:
    """The statistic of all scores, with its percentile bootstrap interval; `strata` has one array per task."""
    tasks = [_scores(values) for values in strata]
    value = float(statistic(np.concatenate(tasks)))
    if max(len(task) for task in tasks) < 2:
        return Estimate(value, None, None, confidence)
    draws = bootstrap(tasks, statistic, rng=rng, num_resamples=num_resamples)
    low, high = _bounds(draws, confidence)
    return Estimate(value, float(low), float(high), confidence)


def bootstrap(
    strata: Sequence[npt.ArrayLike], statistic: Statistic, *, rng: np.random.Generator, num_resamples: int
) -> Array:
    """The statistic of `num_resamples` bootstrap samples: each has as many runs per task as the data, drawn with
    replacement within the task."""
    tasks = [_scores(values) for values in strata]
    step = max(CHUNK_VALUES // sum(len(task) for task in tasks), 1)
    parts = []
    for start in range(0, num_resamples, step):
        count = min(step, num_resamples - start)
        drawn = [task[rng.integers(len(task), size=(count, len(task)))] for task in tasks]
        parts.append(statistic(np.concatenate(drawn, axis=1)))  # (count, runs of all tasks) -> (count,)
    return np.concatenate(parts)


def curve_band(
    curves: Array,
    statistic: Statistic = iqm,
    *,
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
    num_resamples: int = 1000,
) -> tuple[Array, Array, Array]:
    """Line, lower and upper bound of curves (runs, points): the statistic and its bootstrap interval at each point.

    A bootstrap sample takes whole runs, the same ones at every point, so the bounds do not jitter along the curve.
    """
    num_runs, num_points = curves.shape
    line = statistic(curves.T)
    if num_runs < 2:
        return line, line, line
    chosen = rng.integers(num_runs, size=(num_resamples, num_runs))
    bounds = [_bounds(statistic(curves[:, i][chosen]), confidence) for i in range(num_points)]
    low, high = np.array(bounds).T
    return line, low, high


def probability_of_improvement(
    scores: Sequence[npt.ArrayLike],
    others: Sequence[npt.ArrayLike],
    *,
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
) -> Estimate:
    """Probability that a run of the first scores higher than one of the second on the same task, ties counting half:
    the mean over tasks of the Mann-Whitney U statistic divided by the number of pairs."""
    value, draws = 0.0, np.zeros(num_resamples)
    tasks = [(_scores(mine), _scores(theirs)) for mine, theirs in zip(scores, others, strict=True)]
    for mine, theirs in tasks:
        wins = (np.sign(mine[:, None] - theirs) + 1.0) / 2  # (runs, other runs)
        value += float(wins.mean()) / len(tasks)
        counts, other_counts = (_draw_counts(len(runs), rng, num_resamples) for runs in (mine, theirs))
        draws += ((counts @ wins) * other_counts).sum(axis=1) / wins.size / len(tasks)
    if max(len(runs) for pair in tasks for runs in pair) < 2:
        return Estimate(value, None, None, confidence)
    low, high = _bounds(draws, confidence)
    return Estimate(value, float(low), float(high), confidence)


def performance_profile(
    strata: Sequence[npt.ArrayLike],
    levels: Array,
    *,
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
    num_resamples: int = 1000,
) -> tuple[Array, Array, Array]:
    """The share of all runs that score at least each of `levels` (points,), with lower and upper bounds."""
    tasks = [_scores(values) for values in strata]
    total = sum(len(task) for task in tasks)
    line, draws = np.zeros(len(levels)), np.zeros((num_resamples, len(levels)))
    for task in tasks:
        reached = (task[:, None] >= levels).astype(np.float64)  # (runs, points)
        line += reached.sum(axis=0) / total
        draws += _draw_counts(len(task), rng, num_resamples) @ reached / total
    low, high = _bounds(draws, confidence)
    return line, low, high


def _draw_counts(num_runs: int, rng: np.random.Generator, num_resamples: int) -> Array:
    """How often each run occurs in each bootstrap sample (samples, runs): all that a mean over runs needs."""
    drawn = rng.integers(num_runs, size=(num_resamples, num_runs)) + num_runs * np.arange(num_resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=num_resamples * num_runs)
    return counts.reshape(num_resamples, num_runs).astype(np.float64)


def _bounds(draws: Array, confidence: float) -> Array:
    """Lower and upper bound of bootstrap values (samples, ...)."""
    tail = (1.0 - confidence) / 2
    return np.asarray(np.quantile(draws, [tail, 1.0 - tail], axis=0))


def _scores(values: npt.ArrayLike) -> Array:
    scores = np.asarray(values, np.float64)
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"each task needs a list of one or more scores, not an array of shape {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is NaN or infinite; leave such runs out and report it")
    return scores
