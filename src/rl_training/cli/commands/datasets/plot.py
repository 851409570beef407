"""`rl dataset plot`: draw what is in a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.commands.analysis.selection import write_file
from rl_training.cli.flags import argument, json_flag, output_dir_flag, text
from rl_training.cli.output import print_json, show
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class PlotDatasetOptions:
    dataset: str = argument()
    output: str = text(
        "file to write, ending in .png, .svg or .pdf (default dataset.png)", "FILE", default="dataset.png"
    )
    output_dir: str | None = output_dir_flag("folder to look for the run of run:RUN in (default runs)")
    json: bool = json_flag()


def run(options: PlotDatasetOptions) -> int:
    from rl_training.data.datasets.opening import open_dataset
    from rl_training.experiments.analysis.dataset_figure import dataset_figure
    from rl_training.experiments.analysis.plots import check_ending, write_figure

    path = Path(options.output)
    ending = path.suffix[1:].lower()
    check_ending(ending)
    data = open_dataset(options.dataset, output_dir=options.output_dir or "runs", verify=False)
    written = write_file(path, write_figure(dataset_figure(data, options.dataset), ending))
    if options.json:
        print_json({"written": [written]})
    else:
        show(written)
    return 0


COMMAND = Command(
    name="dataset plot",
    summary="draw the returns, actions and coverage of a dataset",
    usage="DATASET [flags]",
    options=PlotDatasetOptions,
    run=run,
    examples=("rl dataset plot data/expert", "rl dataset plot run:latest --output replay.svg"),
    notes="DATASET is a folder, an .npz file, minari:ID, or run:RUN[:STEP] for the replay rows of a run.",
)
