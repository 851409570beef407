"""`rl plot compare`: aggregate scores, performance profile and probability of improvement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.commands.analysis.selection import (
    NOTES,
    Selected,
    by_flag,
    run_errors_as_usage,
    runs_argument,
    save_plot,
    unfinished_flag,
)
from rl_training.cli.flags import json_flag, output_dir_flag, text
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class PlotCompareOptions:
    runs: tuple[str, ...] = runs_argument()
    metric: str = text("what to draw; with a minus sign low is good (default reward)", "NAME", default="reward")
    by: tuple[str, ...] = by_flag()
    unfinished: bool = unfinished_flag()
    output: str = text(
        "file to write, ending in .png, .svg or .pdf (default compare.png)", "FILE", default="compare.png"
    )
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: PlotCompareOptions) -> int:
    plots = Selected(options.runs, options.output_dir, options.by, options.unfinished).plotter()
    with run_errors_as_usage():
        plots.plot_algorithm_comparison(options.runs, options.metric)
    return save_plot(plots, Path(options.output), as_json=options.json)


COMMAND = Command(
    name="plot compare",
    summary="draw aggregate scores, performance profile and probability of improvement",
    usage="RUN... [flags]",
    options=PlotCompareOptions,
    run=run,
    examples=("rl plot compare env=CartPole-v1 --by algorithm",),
    notes=NOTES,
)
