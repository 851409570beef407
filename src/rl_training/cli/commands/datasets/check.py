"""`rl dataset check`: compare a dataset with its checksums and look for bad values."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.flags import arguments, output_dir_flag
from rl_training.cli.output import show
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    datasets: tuple[str, ...] = arguments(1)
    output_dir: str | None = output_dir_flag("folder to look for the run of run:RUN in (default runs)")


def run(options: CheckOptions) -> int:
    from rl_training.data.datasets.opening import open_dataset

    for where in options.datasets:
        data = open_dataset(where, output_dir=options.output_dir or "runs")
        show(f"{where}: {len(data):,} rows are as they were written, all finite; sha256 {data.sha256}")
    return 0


COMMAND = Command(
    name="dataset check",
    summary="compare a dataset with its checksums and look for bad values",
    usage="DATASET ...",
    options=CheckOptions,
    run=run,
    examples=("rl dataset check data/expert",),
    notes="The first problem is named with its file and column, and the exit code is 2.",
)
