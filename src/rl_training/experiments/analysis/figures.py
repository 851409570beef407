"""The figures of a comparison: learning curves, scores with their intervals, sensitivity to a hyperparameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rl_training.experiments.analysis.comparison import Improvement, MetricResult
from rl_training.experiments.analysis.config_differences import varied
from rl_training.experiments.analysis.entries import Entry, Run, shortened, value_text
from rl_training.experiments.analysis.metrics.metric import Metric
from rl_training.experiments.analysis.plots import PALETTE, SIZE, axis_label, draw_band, figure_style, short_number
from rl_training.experiments.analysis.statistics import CONFIDENCE, Estimate, estimate
from rl_training.experiments.keeping.filters import find_key
from rl_training.seeding import stream
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_ENTRIES = 12
"""Maximum number of entries in a figure; of more, the best are shown."""
MAX_COLUMNS = 3
MAX_PAIRS = 8
PAIR = 36
"""Maximum characters of a label beside a bar."""
DASHES = ("-", "--", ":", "-.")


def curves_figure(result: MetricResult) -> Figure:
    """Learning curves: a panel per environment with a line and its interval per entry, and each run behind it."""
    labels = _shown(result)
    counts = {label: sum(len(curves) for (one, _), curves in result.curves.items() if one == label) for label in labels}
    places = [place for place in result.curves if result.curves[place] and place[0] in labels]
    tasks = sorted({task for _, task in places})
    if not tasks:
        raise ConfigError(f"no run has logged '{result.metric.name}'; there is no curve to draw")
    columns = min(len(tasks), MAX_COLUMNS)
    rows = -(-len(tasks) // columns)
    with figure_style():
        figure, panels = _panels(rows, columns)
        for axes, task in zip(panels, tasks, strict=False):
            for number, label in enumerate(labels):
                if curves := result.curves.get((label, task)):
                    draw_band(axes, curves, **_look(number), label=f"{shortened(label)} ({counts[label]})")
            _steps_axis(axes, result.axes.get(task, "env steps"))
            axes.set(title=task, ylabel=axis_label(result.metric.label))
        for axes in panels[len(tasks) :]:
            axes.set_axis_off()
        _legend(figure, panels, f"IQM of (n) runs, {CONFIDENCE:.0%} interval{_left_out(result, labels)}")
        return figure


def comparison_figure(result: MetricResult) -> Figure:
    """IQM, median and mean with their intervals; below, performance profile and probability of improvement."""
    labels, headline = _shown(result), result.headline
    if not headline:
        raise ConfigError("the entries have no environment in common; plot each environment by itself")
    summaries = [one for label in labels for one in headline if one.entry == label]
    unit = axis_label(result.metric.label)
    unit = f"{unit}, scaled" if result.is_scaled else unit
    pairs = _shown_pairs(result, labels)
    with figure_style():
        from matplotlib.figure import Figure

        heights = [0.36 * len(labels) + 1.5, max(2.8, 0.5 * len(pairs) + 1.1)]
        figure = Figure(figsize=(11.0, sum(heights)), layout="constrained")
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights).flat
        for axes, name in zip(above.subplots(1, 3, sharey=True), ("iqm", "median", "mean"), strict=True):
            bars = [(shortened(one.entry, PAIR), getattr(one, name)) for one in summaries]
            _draw_intervals(axes, bars, [_look(number)["color"] for number in range(len(bars))])
            axes.set(title=name.replace("iqm", "IQM"), xlabel=unit)
            axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
        left, right = below.subplots(1, 2)
        _draw_profiles(left, result, labels, unit)
        bars = [(f"{shortened(one.entry, PAIR)}\n> {shortened(one.over, PAIR)}", one.probability) for one in pairs]
        _draw_intervals(right, bars, [PALETTE[0]] * len(bars))
        right.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
        right.set(title="probability of improvement", xlim=(-0.02, 1.02))
        right.tick_params(axis="y", labelsize="small")
        task, left_out = headline[0].task, _left_out(result, labels)
        figure.suptitle(f"{task}: {CONFIDENCE:.0%} stratified bootstrap intervals{left_out}", fontsize=11)
        return figure


def sensitivity_figure(entries: Sequence[Entry], metric: Metric, parameters: Sequence[str] = ()) -> Figure:
    """Final scores over the values of a hyperparameter, a panel each: every run, and the IQM with its interval.

    The default `parameters` are all that differ between the runs.
    """
    runs = [run for entry in entries for run in entry.runs]
    keys = list(parameters) or varied(runs)
    if not keys:
        raise ConfigError("no field of the config differs between these runs; name runs of a sweep")
    columns = min(len(keys), MAX_COLUMNS)
    with figure_style():
        figure, panels = _panels(-(-len(keys) // columns), columns)
        for axes, key in zip(panels, keys, strict=False):
            _draw_sensitivity(axes, runs, metric, key)
            axes.set(xlabel=key, ylabel=axis_label(metric.label))
        for axes in panels[len(keys) :]:
            axes.set_axis_off()
        _legend(figure, panels, f"IQM of runs, {CONFIDENCE:.0%} interval; points are runs")
        return figure


# -- parts of figures -------------------------------------------------------------------------------------------------


def _draw_intervals(axes: Axes, bars: Sequence[tuple[str, Estimate]], colors: Sequence[str]) -> None:
    """Draw a bar from bound to bound with a mark at the value for each estimate."""
    for number, ((_, found), color) in enumerate(zip(bars, colors, strict=True)):
        if found.low is not None and found.high is not None:
            axes.barh(number, found.high - found.low, 0.6, found.low, color=color, alpha=0.3, linewidth=0)
        axes.plot([found.value], [number], marker="|", markersize=13, markeredgewidth=2.5, color=color)
    axes.set_yticks(range(len(bars)), [text for text, _ in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.use_sticky_edges = False  # a bar that ends at the frame would look cut off
    axes.grid(visible=False, axis="y")
    axes.locator_params(axis="x", nbins=5)


def _draw_profiles(axes: Axes, result: MetricResult, labels: Sequence[str], unit: str) -> None:
    for profile in result.profiles:
        if profile.entry in labels:
            look = _look(labels.index(profile.entry))
            axes.plot(result.levels, profile.share, **look, linewidth=2)
            axes.fill_between(result.levels, profile.low, profile.high, color=look["color"], alpha=0.15, linewidth=0)
    sign = "<=" if result.metric.low_is_good and not result.overall else ">="
    axes.set(
        title="performance profile", xlabel=f"{unit}: level", ylabel=f"share of runs {sign} level", ylim=(-0.03, 1.03)
    )
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))


def _draw_sensitivity(axes: Axes, runs: Sequence[Run], metric: Metric, parameter: str) -> None:
    key = find_key(parameter)
    scored = [(run, key.of(run.row), score) for run in runs if (score := metric.score(run)) is not None]
    values = {repr(value): value for _, value, _ in scored}
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    ordered = sorted(values, key=lambda name: values[name] if is_number else name)
    places = {name: float(values[name]) if is_number else float(i) for i, name in enumerate(ordered)}
    for number, task in enumerate(sorted({run.task for run, _, _ in scored})):
        look = _look(number)
        at, line, low, high = [], [], [], []
        for name in ordered:
            scores = [score for run, value, score in scored if run.task == task and repr(value) == name]
            if not scores:
                continue
            found = estimate([scores], rng=stream(0, "bootstrap"))
            at.append(places[name])
            line.append(found.value)
            low.append(found.value if found.low is None else found.low)
            high.append(found.value if found.high is None else found.high)
            axes.plot([places[name]] * len(scores), scores, ".", color=look["color"], alpha=0.45, markersize=6)
        axes.plot(at, line, **look, linewidth=2, marker="o", label=task)
        axes.fill_between(at, low, high, color=look["color"], alpha=0.2, linewidth=0)
    if is_number and min(places.values(), default=0) > 0 and max(places.values()) >= 20 * min(places.values()):
        axes.set_xscale("log")
    axes.set_xticks([places[name] for name in ordered], [shortened(value_text(values[name]), 18) for name in ordered])
    axes.minorticks_off()


def _panels(rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    width = SIZE[0] if columns == 1 else 4.2 * columns
    figure = Figure(figsize=(width, 3.4 * rows + 0.9), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _legend(figure: Figure, panels: Sequence[Axes], title: str) -> None:
    """Add one legend for all panels, below them."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    columns = min(len(handles), 2 if len(panels) == 1 else 4)
    longest = max(map(len, handles), default=0)
    columns = max(1, min(columns, int(figure.get_figwidth() * 11 / (longest + 6))))
    figure.set_figheight(figure.get_figheight() + 0.2 * (-(-len(handles) // columns) - 1))
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize="small", title=title,
        title_fontsize="small",
    )  # fmt: skip


def _steps_axis(axes: Axes, what: str) -> None:
    axes.set_xlabel(what)
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
    axes.margins(x=0.02)


def _look(number: int) -> dict[str, Any]:
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": DASHES[number // len(PALETTE) % len(DASHES)]}


def _shown(result: MetricResult) -> list[str]:
    """The entries to show, in their order: all or, if there are too many, the best."""
    labels = list(dict.fromkeys(one.entry for one in result.summaries))
    if len(labels) <= MAX_ENTRIES:
        return labels
    sign = -1 if result.metric.low_is_good and not result.overall else 1
    ranked = sorted(result.headline or result.summaries, key=lambda one: -sign * one.iqm.value)
    best = set(list(dict.fromkeys(one.entry for one in ranked))[:MAX_ENTRIES])
    return [label for label in labels if label in best]


def _shown_pairs(result: MetricResult, labels: Sequence[str]) -> list[Improvement]:
    """The pairs to show: all or, if there are too many, those of the best entry, which comes first."""
    pairs = [one for one in result.improvements if one.entry in labels and one.over in labels]
    if len(pairs) <= MAX_PAIRS:
        return pairs
    wins = dict.fromkeys(labels, 0.0)
    for one in pairs:
        wins[one.entry] += one.probability.value
        wins[one.over] += 1.0 - one.probability.value
    best = max(labels, key=lambda label: wins[label])
    return [one.turned() if one.over == best else one for one in pairs if best in (one.entry, one.over)]


def _left_out(result: MetricResult, labels: Sequence[str]) -> str:
    count = len({one.entry for one in result.summaries})
    return f" (the best {len(labels)} of {count})" if len(labels) < count else ""
