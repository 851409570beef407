"""`rl plot curves`: learning curves with their intervals."""

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
class PlotCurvesOptions:
    runs: tuple[str, ...] = runs_argument()
    metric: str = text("what to draw; with a minus sign low is good (default reward)", "NAME", default="reward")
    by: tuple[str, ...] = by_flag()
    unfinished: bool = unfinished_flag()
    output: str = text("file to write, ending in .png, .svg or .pdf (default curves.png)", "FILE", default="curves.png")
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: PlotCurvesOptions) -> int:
    plots = Selected(options.runs, options.output_dir, options.by, options.unfinished).plotter()
    with run_errors_as_usage():
        plots.plot_learning_curves(options.runs, options.metric)
    return save_plot(plots, Path(options.output), as_json=options.json)


COMMAND = Command(
    name="plot curves",
    summary="draw learning curves with their intervals",
    usage="RUN... [flags]",
    options=PlotCurvesOptions,
    run=run,
    examples=("rl plot curves latest", "rl plot curves baseline latest --output curves.pdf"),
    notes=NOTES,
)
