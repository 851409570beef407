"""`rl index rebuild`: the index of runs, made again from the run directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_training.cli.flags import json_flag, output_dir_flag
from rl_training.cli.output import print_json, show
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import existing_dir

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class RebuildOptions:
    output_dir: str | None = output_dir_flag("folder of the runs (default runs)")
    json: bool = json_flag()


def run(options: RebuildOptions) -> int:
    import sqlite3

    from rl_training.runs.index import RunIndex
    from rl_training.types import RunError

    index = RunIndex(existing_dir(options.output_dir))
    if not index.output_dir.is_dir():
        raise UsageError(f"no folder '{index.output_dir}'; name it with --output-dir")
    try:
        count, mode = index.rebuild(), index.journal_mode()
    except (sqlite3.Error, OSError) as error:
        raise RunError(f"cannot write the index '{index.path}': {error}; {cure_of(index.output_dir)}") from error
    if options.json:
        print_json({"index": index.path, "runs": count, "journal_mode": mode})
    else:
        show(f"{index.path}: {count} runs")
    return 0


def cure_of(folder: Path) -> str:
    """The end of the message where a folder cannot be written to: why, and what to do."""
    from rl_training.system.atomic_io import disk_state

    state = disk_state(folder)
    if state == "the disk is full":
        return f"{state}: `rl cleanup` makes room"
    return f"{state}; `rl list` works without an index" if state else "check the permissions of the file and its folder"


COMMAND = Command(
    name="index rebuild",
    summary="rebuild the index of runs from the run directories",
    usage="[flags]",
    options=RebuildOptions,
    run=run,
    examples=("rl index rebuild", "rl index rebuild --output-dir results"),
)
