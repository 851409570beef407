"""`Plotter`: figures of runs, groups, sweeps and filters from Python; `rl plot` uses it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.experiments.analysis.compare import compare
from rl_training.experiments.analysis.comparison import Comparison, MetricResult
from rl_training.experiments.analysis.entries import find_entries
from rl_training.experiments.analysis.figures import comparison_figure, curves_figure, sensitivity_figure
from rl_training.experiments.analysis.metrics.metric import parse_metric
from rl_training.experiments.analysis.plots import FORMATS, check_ending, figure_style, save_figure
from rl_training.runs.names import name_part, readable_errors
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Plotter:
    """Draws figures and keeps them until `save_plots` writes all of them.

    `runs` are names or paths of runs, groups and sweeps, or filters; `by` splits them by a key.
    """

    def __init__(self, output_dir: str | Path = "runs", *, by: Sequence[str] = (), unfinished: bool = False) -> None:
        self.output_dir = Path(output_dir).expanduser()
        self.by = tuple(by)
        self.unfinished = unfinished
        self.figures: dict[str, Figure] = {}

    def plot_learning_curves(self, runs: Sequence[str | Path], metric: str = "reward") -> Figure:
        """Learning curves: a line with its interval per entry, a panel per environment."""
        return self._keep("curves", metric, curves_figure(self._result(runs, metric)))

    def plot_algorithm_comparison(self, runs: Sequence[str | Path], metric: str = "reward") -> Figure:
        """Aggregate scores with their intervals, performance profile, probability of improvement."""
        return self._keep("compare", metric, comparison_figure(self._result(runs, metric)))

    def plot_hyperparameter_sensitivity(
        self, runs: Sequence[str | Path], parameters: Sequence[str] = (), metric: str = "reward"
    ) -> Figure:
        """Final scores over each of `parameters`, by default over all that differ between the runs."""
        entries = find_entries(runs, self.output_dir, unfinished=self.unfinished).entries
        found = parse_metric(metric, [run for entry in entries for run in entry.runs])
        return self._keep("sensitivity", metric, sensitivity_figure(entries, found, parameters))

    def add_comparison(self, comparison: Comparison) -> None:
        """Add curves and comparison of every metric of an existing comparison; what cannot be drawn is left out."""
        figure_style()  # fails early without matplotlib
        for result in comparison.metrics:
            for kind, draw in (("curves", curves_figure), ("compare", comparison_figure)):
                with suppress(ConfigError):
                    self._keep(kind, result.metric.name, draw(result))

    def save_plots(self, folder: str | Path = "plots", formats: Sequence[str] = FORMATS) -> list[Path]:
        """Write every figure drawn so far as `<folder>/<kind>_<metric>.<format>`; formats are png, svg and pdf."""
        folder = Path(folder).expanduser()
        for ending in formats:
            check_ending(ending)
        with readable_errors(f"cannot write a plot in '{folder}'"):
            return [path for name, one in self.figures.items() for path in save_figure(one, folder / name, formats)]

    def _result(self, runs: Sequence[str | Path], metric: str) -> MetricResult:
        return compare(find_entries(runs, self.output_dir, by=self.by, unfinished=self.unfinished), [metric]).metrics[0]

    def _keep(self, kind: str, metric: str, figure: Figure) -> Figure:
        self.figures[f"{kind}_{name_part(metric.lstrip('-'))}"] = figure
        return figure
