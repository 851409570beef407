"""The figure of a dataset: returns of its episodes, how often actions were taken, which observations it covers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.data.datasets.dataset import Dataset
from rl_training.experiments.analysis.plots import PALETTE, figure_style, short_number
from rl_training.types import ACTION_MASK, Array, BoxSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (10.8, 3.6)
RETURN_BINS, ACTION_BINS, COVERAGE_BINS = 30, 20, 40
MAX_DIMENSIONS = 6
"""Dimensions of an action that are drawn at most."""
MAX_NUMBERS = 512
"""Numbers of an observation that its directions are found in: of a larger one, such as an image, evenly spaced ones."""
MAX_ROWS = 100_000
"""Rows that the coverage is drawn from: of a larger dataset, evenly spaced ones."""


def dataset_figure(data: Dataset, title: str) -> Figure:
    """Three panels: returns, actions, coverage of the observations by their two main directions."""
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=SIZE, layout="constrained")
        returns, actions, coverage = figure.subplots(1, 3)
        draw_returns(returns, data)
        draw_actions(actions, data)
        draw_coverage(coverage, data)
        figure.suptitle("".join(letter if letter.isprintable() else "?" for letter in title))
        return figure


def draw_returns(axes: Axes, data: Dataset) -> None:
    """Returns of whole episodes, with the reference scores where there are any."""
    values = data.returns[data.whole] if data.whole.any() else data.returns
    axes.hist(values, bins=min(RETURN_BINS, max(len(values), 1)), color=PALETTE[0])
    for value, label in ((data.info.ref_min, "score 0"), (data.info.ref_max, "score 100")):
        if value is not None:
            axes.axvline(value, color=PALETTE[1], linestyle="--", linewidth=1.2)
            axes.text(value, axes.get_ylim()[1], f" {label}", color=PALETTE[1], fontsize="x-small", va="top")
    kind = "whole episodes" if data.whole.any() else "episodes, none of them whole"
    axes.set(title="returns", xlabel="return", ylabel=f"{len(values):,} {kind}")
    axes.locator_params(axis="y", integer=True)
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))


def draw_actions(axes: Axes, data: Dataset) -> None:
    """Share of rows per action; Box actions in -1..1, a line per dimension."""
    space = data.info.spaces[1]
    if isinstance(space, BoxSpec):
        columns = (data.unit_actions() if space.is_bounded else np.asarray(data.actions)).reshape(len(data), -1).T
        limits = (-1.0, 1.0) if space.is_bounded else None
        for number, column in enumerate(columns[:MAX_DIMENSIONS]):
            counts, edges = np.histogram(column, ACTION_BINS, limits)
            axes.stairs(counts / len(data), edges, color=PALETTE[number % len(PALETTE)], label=f"action[{number}]")
        axes.set(xlabel="action in -1..1" if space.is_bounded else "action")
    else:
        columns = np.asarray(data.actions).reshape(len(data), -1).T
        width = 0.8 / len(columns[:MAX_DIMENSIONS])
        for number, column in enumerate(columns[:MAX_DIMENSIONS]):
            counts = np.bincount(column) / len(data)
            places = np.arange(len(counts)) + number * width
            axes.bar(places, counts, width, color=PALETTE[number % len(PALETTE)], label=f"action[{number}]")
        axes.set(xlabel="action")
    axes.set(title="actions", ylabel="share of rows")
    if len(columns) > 1:
        axes.legend(fontsize="x-small")


def draw_coverage(axes: Axes, data: Dataset) -> None:
    """How many rows are where, along the two directions in which observations vary most."""
    rows = features_of(data)
    places, words = main_directions(rows)
    image = axes.hist2d(places[:, 0], places[:, 1], bins=COVERAGE_BINS, cmin=1, cmap="viridis")[3]
    axes.figure.colorbar(image, ax=axes, label="rows" if len(rows) == len(data) else f"rows, of {len(rows):,}")
    axes.set(title="coverage of observations", xlabel=words[0], ylabel=words[1])
    axes.grid(visible=False)


def features_of(data: Dataset) -> Array:
    """Observations as rows of real numbers, all keys but the action mask side by side."""
    rows = spaced(len(data), MAX_ROWS)
    stored: Any = data.observations
    leaves = [leaf for key, leaf in stored.items() if key != ACTION_MASK] if isinstance(stored, dict) else [stored]
    sizes = [math.prod(leaf.shape[1:]) for leaf in leaves]
    chosen, begin, parts = spaced(sum(sizes), MAX_NUMBERS), 0, []
    for leaf, size in zip(leaves, sizes, strict=True):
        own = chosen[(chosen >= begin) & (chosen < begin + size)] - begin
        pieces = np.array_split(rows, max(len(rows) * size // 2**24, 1))  # a copy of all images may not fit
        parts.append(np.concatenate([leaf[data.places[piece]].reshape(len(piece), -1)[:, own] for piece in pieces]))
        begin += size
    return np.concatenate(parts, axis=1, dtype=np.float64)


def spaced(count: int, most: int) -> Array:
    """At most `most` whole numbers below `count`, evenly spaced."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.int64)


def main_directions(rows: Array) -> tuple[Array, tuple[str, str]]:
    """Rows (R, 2) along their two main directions, each dimension scaled to standard deviation 1, and their names."""
    spread = rows.std(0)
    scaled = (rows - rows.mean(0)) / np.where(spread > 0.0, spread, 1.0)
    if scaled.shape[1] <= 2:
        columns = np.concatenate([scaled, np.zeros((len(rows), 2 - scaled.shape[1]))], axis=1)
        return columns, ("observation[0]", "observation[1]")
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(rows))
    shares = values[::-1] / max(values.sum(), 1e-12)
    # the sign of a direction is arbitrary: its largest entry is made positive
    main = vectors[:, ::-1][:, :2]
    main = main * np.sign(main[np.abs(main).argmax(0), [0, 1]])
    names = tuple(f"direction {i + 1} ({shares[i]:.0%} of the variance)" for i in range(2))
    return scaled @ main, (names[0], names[1])
