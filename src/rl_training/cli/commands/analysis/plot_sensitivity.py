"""`rl plot sensitivity`: the final score against the values of hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.commands.analysis.selection import (
    NOTES,
    Selected,
    run_errors_as_usage,
    runs_argument,
    save_plot,
    unfinished_flag,
)
from rl_training.cli.flags import json_flag, names, output_dir_flag, text
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class PlotSensitivityOptions:
    runs: tuple[str, ...] = runs_argument()
    metric: str = text("what to draw; with a minus sign low is good (default reward)", "NAME", default="reward")
    parameters: tuple[str, ...] = names("fields of the config (default: all that differ)", "KEY,KEY")
    unfinished: bool = unfinished_flag()
    output: str = text(
        "file to write, ending in .png, .svg or .pdf (default sensitivity.png)", "FILE", default="sensitivity.png"
    )
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: PlotSensitivityOptions) -> int:
    plots = Selected(options.runs, options.output_dir, unfinished=options.unfinished).plotter()
    with run_errors_as_usage():
        plots.plot_hyperparameter_sensitivity(options.runs, options.parameters, options.metric)
    return save_plot(plots, Path(options.output), as_json=options.json)


COMMAND = Command(
    name="plot sensitivity",
    summary="draw how hyperparameters change the final score",
    usage="SWEEP|RUN... [flags]",
    options=PlotSensitivityOptions,
    run=run,
    examples=("rl plot sensitivity latest-sweep", "rl plot sensitivity algorithm=ppo --parameters algorithm.lr"),
    notes=NOTES,
)
