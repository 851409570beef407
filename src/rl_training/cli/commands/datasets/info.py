"""`rl dataset info`: describe a dataset."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.commands.datasets.texts import describe
from rl_training.cli.flags import argument, json_flag, output_dir_flag
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class InfoOptions:
    dataset: str = argument()
    output_dir: str | None = output_dir_flag("folder to look for the run of run:RUN in (default runs)")
    json: bool = json_flag()


def run(options: InfoOptions) -> int:
    from rl_training.data.datasets.opening import open_dataset

    data = open_dataset(options.dataset, output_dir=options.output_dir or "runs", verify=False)
    return describe(data, options.dataset, as_json=options.json)


COMMAND = Command(
    name="dataset info",
    summary="describe a dataset: episodes, returns, actions, where it comes from",
    usage="DATASET [flags]",
    options=InfoOptions,
    run=run,
    examples=("rl dataset info data/expert", "rl dataset info run:latest --json"),
    notes="DATASET is a folder, an .npz file, minari:ID, or run:RUN[:STEP] for the replay rows of a run.",
)
