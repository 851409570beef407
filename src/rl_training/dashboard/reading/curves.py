"""Curves for the page: one metric of one run over an axis, smoothed and thinned out on the server from all points.

Thinning keeps the smallest and the largest value of every stretch, so that a spike of one sample stays visible at every
zoom; a KL spike is what one looks for.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.dashboard.reading.columns import ColumnStore, LogView
from rl_training.dashboard.reading.log_columns import STEPS
from rl_training.experiments.analysis.curves import EVAL, Curve
from rl_training.system.json_lines import number_of, read_rows, steps_of
from rl_training.types import Array, ConfigError

AXES = {
    "env_steps": STEPS,
    "updates": "updates",
    "episodes": "episodes",
    "relative": "time/elapsed_seconds",
    "wall": "time/elapsed_seconds",
}
"""Name of an axis to the metric behind it. `wall` adds the time at which the run began."""
MAX_POINTS = 2000
MAX_CURVES = 200


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a request and the part of it that is shown."""

    name: str = "env_steps"
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.name not in AXES:
            raise ConfigError(f"unknown axis '{self.name[:40]}'; there are {', '.join(AXES)}")

    @property
    def is_whole(self) -> bool:
        return self.low is None and self.high is None


def read_points(
    store: ColumnStore, run: Path, metric: str, axis: str = "env_steps", started: str | None = None
) -> tuple[Array, Array, LogView]:
    """Places and values of a metric, in order; a value that was logged as NaN or Inf is NaN here.

    Rows of equal env steps count once, the last one, and the evaluation before training is the first point: the same
    points as `rl compare` reads.
    """
    view = store.read(run, [STEPS, AXES[axis], metric])
    steps, places, values = (view.columns[name] for name in (STEPS, AXES[axis], metric))
    has = np.isfinite(steps) & np.isfinite(places) & ~np.isnan(values)
    steps, places, values = steps[has], places[has], values[has]
    order = _last_of_equal(steps, np.isfinite(values))
    places, values = places[order], np.where(np.isinf(values[order]), np.nan, values[order])
    if axis == "env_steps" and len(places) and metric.startswith(EVAL):
        start = _evaluation_at_start(run, metric)
        if start is not None:
            keep = places != 0
            places, values = np.r_[0.0, places[keep]], np.r_[start, values[keep]]
    if axis == "wall":
        places = places + _timestamp(started)
    elif axis != "env_steps":
        places = np.maximum.accumulate(places) if len(places) else places
    return places, values, view


def _last_of_equal(steps: Array, is_finite: Array) -> Array:
    """Indices of increasing steps; of equal ones the last with a finite value, or the last if there is none."""
    if (np.diff(steps) > 0).all():
        return np.arange(len(steps))
    ranked = np.lexsort((np.arange(len(steps)), is_finite, steps))
    is_last = np.append(np.diff(steps[ranked]) > 0, True)
    return np.asarray(ranked[is_last])


def finite_curve(
    store: ColumnStore, run: Path, metric: str, axis: Axis, started: str | None = None
) -> tuple[Curve, LogView]:
    """The finite points as a curve that `align` takes; of a part of the axis, with one point beyond each end."""
    places, values, view = read_points(store, run, metric, axis.name, started)
    is_number = np.isfinite(values)
    places, values = places[is_number], values[is_number]
    if not axis.is_whole:
        inside = window(places, axis)
        places, values = places[inside], values[inside]
    elif axis.name == "env_steps":
        places = places.astype(np.int64)
    return Curve(places, values), view


def _evaluation_at_start(run: Path, metric: str) -> float | None:
    name = metric.removeprefix(EVAL)
    for row in read_rows(run / "logs" / "evals.jsonl"):
        step, value = steps_of(row), number_of(row, name)
        if step is not None and value is not None:
            return float(value) if step == 0 else None
    return None


def _timestamp(started: str | None) -> float:
    try:
        return datetime.fromisoformat(started or "").timestamp()
    except ValueError:
        return 0.0


# -- smoothing and thinning -------------------------------------------------------------------------------------------


def smoothed(values: Array, weight: float) -> tuple[Array, tuple[float, float]]:
    """Debiased exponential moving average, and its state: the sum and the weight of what it has seen. NaN is skipped.

    >>> smoothed(np.array([1.0, 3.0]), 0.5)[0].round(4).tolist()
    [1.0, 2.3333]
    """
    total = mass = 0.0
    result = []
    for value in values.tolist():
        if value == value:
            total, mass = weight * total + (1 - weight) * value, weight * mass + (1 - weight)
            result.append(total / mass)
        else:
            result.append(value)
    return np.array(result, np.float64), (total, mass)


def window(places: Array, axis: Axis) -> slice:
    """The points inside a part of the axis, and the nearest one beyond each end, so that lines reach the edge."""
    low = 0 if axis.low is None else max(int(np.searchsorted(places, axis.low, "left")) - 1, 0)
    high = len(places) if axis.high is None else int(np.searchsorted(places, axis.high, "right")) + 1
    return slice(low, high)


def min_max(values: Array, points: int) -> Array:
    """Indices of at most about `points` values: the smallest and largest of each stretch, both ends, and gaps.

    >>> spike = np.zeros(10_000); spike[5_432] = 9
    >>> kept = min_max(spike, 100); len(kept) <= 110, 5_432 in kept
    (True, True)
    """
    count = len(values)
    if count <= points:
        return np.arange(count)
    buckets = max(points // 2, 1)
    size = -(-count // buckets)
    padded = np.full(buckets * size, np.nan)
    padded[:count] = values
    grid = padded.reshape(buckets, size)
    is_gap = np.isnan(grid)
    starts = np.arange(buckets) * size
    kept = [
        starts + np.where(is_gap, np.inf, grid).argmin(axis=1),
        starts + np.where(is_gap, -np.inf, grid).argmax(axis=1),
    ]
    inside = np.arange(buckets * size).reshape(buckets, size) < count
    has_gap = (is_gap & inside).any(axis=1)
    kept.append((starts + (is_gap & inside).argmax(axis=1))[has_gap])
    return np.unique(np.concatenate([*kept, [0, count - 1]])).clip(0, count - 1)


# -- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CurveRequest:
    """What a panel asks for."""

    metric: str
    axis: Axis
    points: int = 600
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 2 <= self.points <= MAX_POINTS:
            raise ConfigError(f"points must be 2 to {MAX_POINTS}, not {self.points}")
        if not 0 <= self.smoothing < 1:
            raise ConfigError(f"smoothing must be at least 0 and below 1, not {self.smoothing}")


def curve_answer(
    store: ColumnStore, key: str, run: Path, row: Mapping[str, Any], request: CurveRequest
) -> tuple[dict[str, Any], list[Array]]:
    """One curve: its header, and its arrays (places, values, smoothed values where asked for)."""
    axis = request.axis
    places, values, view = read_points(store, run, request.metric, axis.name, row.get("started"))
    total = len(places)
    line, state = smoothed(values, request.smoothing) if request.smoothing else (None, None)
    if not axis.is_whole:
        inside = window(places, axis)
        places, values, line = places[inside], values[inside], None if line is None else line[inside]
    kept = min_max(values, request.points)
    header = {
        "run": key,
        "points": len(kept),
        "total": total,
        "offset": view.offset,
        "generation": view.generation,
        "smoothing": state,
    }
    arrays = [places[kept], values[kept], *([] if line is None else [line[kept]])]
    return header, arrays


def packed(header: Mapping[str, Any], arrays: Sequence[Array]) -> bytes:
    """A binary answer: length of the JSON header (uint32), the header padded to 8 bytes, then float64 arrays."""
    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % 8)
    body = b"".join(np.ascontiguousarray(array, "<f8").tobytes() for array in arrays)
    return struct.pack("<I", len(text)) + text + body
