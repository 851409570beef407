"""`rl dataset merge`: several datasets of one environment as one."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.commands.datasets.texts import author_flag, check_target, licence_flag, signed, write_and_show
from rl_training.cli.flags import arguments, json_flag, output_dir_flag, text
from rl_training.cli.parser import Command, UsageError


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    datasets: tuple[str, ...] = arguments(2)
    output: str | None = text("folder to write, or a file that ends in .npz", "PATH")
    author: str | None = author_flag()
    licence: str | None = licence_flag()
    output_dir: str | None = output_dir_flag("folder to look for the run of run:RUN in (default runs)")
    json: bool = json_flag()


def run(options: MergeOptions) -> int:
    from rl_training.data.datasets.merging import merged
    from rl_training.data.datasets.opening import open_dataset

    if options.output is None:
        raise UsageError("say where to write the dataset: --output PATH")
    check_target(options.output)
    folder = options.output_dir or "runs"
    data = merged([open_dataset(where, output_dir=folder) for where in options.datasets], options.datasets)
    return write_and_show(signed(data, options), options.output, as_json=options.json)


COMMAND = Command(
    name="dataset merge",
    summary="join datasets of one environment",
    usage="DATASET DATASET ... --output PATH [flags]",
    options=MergeOptions,
    run=run,
    examples=("rl dataset merge data/random data/expert --output data/mixed",),
    notes="Episodes stay whole and in order. Actions of different scale are brought to -1..1.",
)
