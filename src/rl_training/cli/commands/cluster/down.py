"""`rl cluster down`: ends the processes that `rl cluster up` has started, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.flags import json_flag, output_dir_flag
from rl_training.cli.output import note, print_json, show
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class DownOptions:
    output_dir: str | None = output_dir_flag("folder of the runs that used it (default runs)")
    json: bool = json_flag()


def run(options: DownOptions) -> int:
    from rl_training.distributed.local_cluster import LocalCluster

    count = LocalCluster(Path(options.output_dir or "runs").expanduser()).down()
    if options.json:
        print_json({"ended": count})
    elif count:
        show(f"ended a head and {count - 1} nodes")
    else:
        note("nothing to do: no cluster of this output directory is running")
    return 0


COMMAND = Command(
    name="cluster down",
    summary="end the Ray cluster that 'rl cluster up' has started",
    usage="[flags]",
    options=DownOptions,
    run=run,
    examples=("rl cluster down", "rl cluster down --output-dir results"),
)
