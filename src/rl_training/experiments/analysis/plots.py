"""Drawing and saving figures: learning curves with confidence bands, drawn off screen without pyplot or global state.

The palette is that of Okabe and Ito, safe for all kinds of colour blindness.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.experiments.analysis.curves import EVALUATION, Curve, align
from rl_training.experiments.analysis.statistics import CONFIDENCE, Statistic, curve_band, iqm
from rl_training.seeding import stream
from rl_training.system.atomic_io import atomic_write
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
SIZE = (7.2, 4.0)
"""Inches: the width of a text column; labels stay readable at half the size."""
FORMATS = ("png", "svg")
ENDINGS = ("png", "svg", "pdf")
MAX_THIN_LINES = 50
"""Maximum number of single runs drawn behind a band."""
UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
STYLE: dict[Any, Any] = {
    "font.size": 11,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "text.parse_math": False,  # names may contain dollar signs
    "svg.fonttype": "none",  # keep text as text: small and searchable
    "svg.hashsalt": "rl_training",  # the same runs give the same bytes
}


def learning_curve(
    curves: Sequence[Curve], title: str, *, metric: str = EVALUATION, statistic: Statistic = iqm
) -> Figure:
    """A figure with an aggregate line and its confidence band, and each run as a thin line behind it."""
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        draw_band(axes, curves, PALETTE[0], statistic=statistic)
        # a control character would make the SVG invalid
        printable = "".join(letter if letter.isprintable() else "?" for letter in title)
        axes.set(title=printable, xlabel="env steps", ylabel=axis_label(metric))
        axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
        axes.margins(x=0.02)
        axes.legend(loc="best", fontsize="small")
        return figure


def draw_band(
    axes: Axes,
    curves: Sequence[Curve],
    color: str,
    *,
    statistic: Statistic = iqm,
    linestyle: str = "-",
    label: str | None = None,
) -> None:
    """Draw a statistic over runs with its confidence band, and the runs themselves. With a `label` the legend names
    only the line, because it is one of several."""
    name = statistic.__name__.replace("iqm", "IQM")
    thin = curves[:MAX_THIN_LINES]
    of_many = f" ({len(thin)} of {len(curves)})" if len(thin) < len(curves) else ""
    alone = label is None
    for number, curve in enumerate(thin):
        marker = "." if len(curve.steps) == 1 else ""
        named = f"single seeds{of_many}" if alone and number == 0 and len(curves) > 1 else None
        alpha = 0.35 if alone else 0.2
        axes.plot(curve.steps, curve.values, color=color, alpha=alpha, linewidth=0.8, marker=marker, label=named)
    grid, values = align(curves)
    if not len(grid):
        return
    line, low, high = curve_band(values, statistic, rng=stream(0, "bootstrap"))
    marker = "o" if len(grid) == 1 else ""
    text = f"{name} of {len(curves)} seeds" if len(curves) > 1 else "one seed"
    text = text if label is None else label
    axes.plot(grid, line, color=color, linewidth=2.2, linestyle=linestyle, marker=marker, label=text)
    if len(curves) > 1:
        named = f"{CONFIDENCE:.0%} interval" if alone else None
        axes.fill_between(grid, low, high, color=color, alpha=0.2, linewidth=0, label=named)


def save_figure(figure: Figure, path: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write `<path>.<format>` for each format, atomically; the same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for ending in formats:
        target = path.with_name(f"{path.name}.{ending}")
        atomic_write(target, write_figure(figure, ending))
        written.append(target)
    return written


def check_ending(ending: str) -> None:
    if ending not in ENDINGS:
        raise ConfigError(f"a plot is one of {', '.join(ENDINGS)}, not '{ending[:20]}'")


def write_figure(figure: Figure, ending: str) -> bytes:
    """A figure as PNG, SVG or PDF."""
    check_ending(ending)
    data = io.BytesIO()
    clock = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[ending]
    with figure_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure.savefig(data, format=ending, metadata=clock)
    return data.getvalue()


def axis_label(metric: str) -> str:
    """
    >>> axis_label("eval/return_mean"), axis_label("train/loss")
    ('evaluation return', 'train/loss')
    """
    return {EVALUATION: "evaluation return", "rollout/return_mean": "training return"}.get(metric, metric)


def short_number(value: float) -> str:
    """
    >>> [short_number(value) for value in (0, 500, 25_000, 1_500_000)]
    ['0', '500', '25k', '1.5M']
    """
    unit, suffix = next(((unit, suffix) for unit, suffix in UNITS if abs(value) >= unit), (1.0, ""))
    return f"{value / unit:g}{suffix}"


def figure_style() -> AbstractContextManager[None]:
    """Context manager with the style of all figures; without matplotlib, a ConfigError with the pip command."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(f"plots need an extra: pip install 'rl-training[analysis]' ({error})") from error
    context: AbstractContextManager[None] = matplotlib.rc_context(STYLE)
    return context
