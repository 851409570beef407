"""Figures of a hyperparameter search: importance of keys, the score over each key, and over the two most important."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.config.searches.sweeps import RangeConfig
from rl_training.experiments.analysis.plots import PALETTE, figure_style, save_figure
from rl_training.experiments.launching.tuning import Tuning
from rl_training.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Trials = Sequence[Mapping[str, Any]]
"""Trials as returned by `Tuning.trials`."""
COLUMNS = 3
LEVELS = 14
MIN_MARKS = 3
"""Minimum number of ticks on a logarithmic axis."""
MIN_FOR_CONTOUR = 4
"""Minimum number of trials for a contour plot."""


def write_plots(tuning: Tuning) -> list[Path]:
    """Write `plots/importance`, `slices` and `contour` of a search, as far as there are enough trials."""
    trials = [trial for trial in tuning.trials() if trial["value"] is not None]
    space = {**tuning.config.ranges, **tuning.config.sweep}
    label = f"{tuning.config.aggregate} of {tuning.config.metric}"
    folder, written = tuning.sweep.path / "plots", []
    if trials:
        written += save_figure(slices(trials, space, label), folder / "slices")
    if importance := tuning.importance():
        written += save_figure(importance_bars(importance), folder / "importance")
        if len(importance) > 1 and len(trials) >= MIN_FOR_CONTOUR:
            first, second, *_ = importance
            written += save_figure(contour(trials, space, (first, second), label), folder / "contour")
    return written


def importance_bars(importance: Mapping[str, float]) -> Figure:
    """A bar chart of importances, the most important key on top."""
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.2, 0.9 + 0.35 * len(importance)), layout="constrained")
        axes = figure.subplots()
        names = list(importance)[::-1]
        bars = axes.barh([short(name) for name in names], [importance[name] for name in names], color=PALETTE[0])
        axes.bar_label(bars, fmt="%.2f", padding=3)
        axes.set(xlabel="importance", xlim=(0, max(importance.values()) * 1.15))
        axes.grid(axis="y", visible=False)
        return figure


def slices(trials: Trials, space: Mapping[str, Any], label: str) -> Figure:
    """The score over each key separately; later trials are darker."""
    with figure_style():
        from matplotlib.figure import Figure

        columns = min(COLUMNS, len(space))
        rows = -(-len(space) // columns)
        figure = Figure(figsize=(2.6 * columns + 0.6, 2.4 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).reshape(-1)
        order = np.argsort(np.argsort([trial["trial"] or 0 for trial in trials]))
        for axes, (key, values) in zip(panels, space.items(), strict=False):
            places = scale_axis(axes, "x", values)
            points = [places(trial["values"][key]) for trial in trials]
            scores = [trial["value"] for trial in trials]
            axes.scatter(points, scores, c=order, cmap="Blues", vmin=-len(trials) / 2, s=18, edgecolors="none")
            best = trials[0]
            axes.scatter([places(best["values"][key])], [best["value"]], marker="*", s=90, color=PALETTE[1])
            axes.set_xlabel(short(key))
        for axes in panels[:: int(columns)]:
            axes.set_ylabel(label)
        for axes in panels[len(space) :]:
            axes.set_visible(False)
        return figure


def contour(trials: Trials, space: Mapping[str, Any], keys: tuple[str, str], label: str) -> Figure:
    """The score over two keys: the trials, and filled contours if they do not lie on a line."""
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.0, 4.6), layout="constrained")
        axes = figure.subplots()
        places = [scale_axis(axes, side, space[key]) for side, key in zip("xy", keys, strict=True)]
        x, y = (
            np.array([place(trial["values"][key]) for trial in trials], np.float64)
            for place, key in zip(places, keys, strict=True)
        )
        scores = np.array([trial["value"] for trial in trials])
        if spans_area(x, y):
            axes.tricontourf(x, y, scores, levels=LEVELS, cmap="viridis", alpha=0.8)
        dots = axes.scatter(x, y, c=scores, cmap="viridis", s=28, edgecolors="white", linewidths=0.6)
        axes.scatter(x[:1], y[:1], marker="*", s=130, color=PALETTE[1], label="best")
        axes.use_sticky_edges = False
        axes.margins(0.04)
        axes.set(xlabel=short(keys[0]), ylabel=short(keys[1]))
        # outside the axes, so that it hides no trial
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
        figure.colorbar(dots, label=label)
        return figure


def scale_axis(axes: Axes, side: str, values: RangeConfig | Sequence[Any]) -> Any:
    """Set up an axis for the values of a key; returns a function from a value to its position on the axis."""
    if isinstance(values, RangeConfig):
        if not values.log:
            return float
        # logarithms on a linear axis, so that contours are interpolated linearly in log space
        marks = round_numbers(values.low, values.high)
        getattr(axes, f"set_{side}ticks")(np.log10(marks), [f"{mark:g}" for mark in marks])
        return np.log10
    names = [str(value) for value in values]
    getattr(axes, f"set_{side}ticks")(range(len(names)), names)
    return lambda value: names.index(str(value))


def round_numbers(low: float, high: float) -> list[float]:
    """Ticks for a logarithmic axis: powers of ten, and more between them where these are too few.

    >>> round_numbers(1e-5, 1e-2), round_numbers(1e-4, 3e-3), round_numbers(2, 9), round_numbers(1.1, 1.2)
    ([1e-05, 0.0001, 0.001, 0.01], [0.0001, 0.0003, 0.001, 0.003], [2.0, 4.0, 6.0, 8.0], [1.1, 1.2])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 2, 4, 6, 8)):
        marks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        inside = [mark for mark in marks if low <= mark <= high]
        if len(inside) >= MIN_MARKS:
            return inside
    return [low, high]


def spans_area(x: Array, y: Array) -> bool:
    """Whether the points do not all lie on one line.

    >>> spans_area(np.arange(4.0), 2 * np.arange(4.0)), spans_area(np.array([0.0, 1, 0, 1]), np.array([0.0, 0, 1, 1]))
    (False, True)
    """
    spread = np.linalg.svd(np.array([x - x.mean(), y - y.mean()]), compute_uv=False)
    return bool(spread[1] > 1e-6 * spread[0]) and len(set(zip(x, y, strict=True))) >= MIN_FOR_CONTOUR


def short(key: str) -> str:
    """A key without its section: `hparams.learning_rate` is `learning_rate`."""
    return key.removeprefix("hparams.")
