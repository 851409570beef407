"""`rl cluster up`: a Ray cluster of several nodes on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.flags import json_flag, output_dir_flag, whole
from rl_training.cli.output import print_json, show
from rl_training.cli.parser import Command, UsageError


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    local: int | None = whole("number of nodes, each a raylet of its own on this machine", low=1)
    cpus: int | None = whole("CPUs that each node offers (default: the cores, shared out)", low=1)
    output_dir: str | None = output_dir_flag("folder of the runs that will use it (default runs)")
    json: bool = json_flag()


def run(options: UpOptions) -> int:
    from rl_training.distributed.local_cluster import LocalCluster
    from rl_training.distributed.ray_executor import require_ray
    from rl_training.system.machine import usable_cores

    if options.local is None:
        raise UsageError("'rl cluster up' starts nodes on this machine; say how many: --local 2")
    require_ray()
    cpus = options.cpus or max(usable_cores() // options.local, 1)
    cluster = LocalCluster(Path(options.output_dir or "runs").expanduser())
    address = cluster.up(options.local, cpus)
    if options.json:
        print_json({"address": address, "nodes": [node.name for node in cluster.nodes()], "cpus": cpus})
    else:
        show(f"a Ray cluster of {options.local} nodes with {cpus} CPU{'s' if cpus > 1 else ''} each at {address}")
        show("  next       rl sweep FILE --executor ray\n  end it     rl cluster down")
    return 0


COMMAND = Command(
    name="cluster up",
    summary="start a Ray cluster of several nodes on this machine",
    usage="--local N [flags]",
    options=UpOptions,
    run=run,
    examples=("rl cluster up --local 2", "rl cluster up --local 4 --cpus 2 --output-dir results"),
    notes="Its processes are bound to 127.0.0.1 and recorded in <output-dir>/.cluster; 'rl cluster down' ends exactly "
    "these. A cluster of several machines is started with Ray's own commands: see the page 'Beyond one machine'.",
)
