"""`rl cluster status`: the nodes of a Ray cluster, and what they offer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.flags import json_flag, output_dir_flag, text
from rl_training.cli.output import print_json, show, table
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    address: str | None = text("address of the cluster (default: that of 'rl cluster up')", "HOST:PORT")
    output_dir: str | None = output_dir_flag("folder of the runs that use it (default runs)")
    json: bool = json_flag()


def run(options: StatusOptions) -> int:
    from rl_training.distributed.local_cluster import ADDRESS_CURE, find_address
    from rl_training.distributed.ray_executor import RayDriver, require_ray

    require_ray()
    folder = Path(options.output_dir or "runs").expanduser().absolute()
    address = find_address(options.address, folder, cure=ADDRESS_CURE)
    driver = RayDriver(address, cure=ADDRESS_CURE)
    nodes = driver.nodes
    driver.end()
    if options.json:
        print_json({"address": address, "nodes": nodes})
        return 0
    rows = [
        [
            node["id"][:6],
            node["host"],
            "alive" if node["alive"] else "dead",
            f"{node['cpus']:g}",
            f"{node['gpus']:g}",
            "head" if node["is_head"] else "",
        ]
        for node in nodes
    ]
    show(f"Ray cluster at {address}")
    show(table(["node", "host", "state", "CPUs", "GPUs", ""], rows))
    return 0


COMMAND = Command(
    name="cluster status",
    summary="list the nodes of a Ray cluster",
    usage="[flags]",
    options=StatusOptions,
    run=run,
    examples=("rl cluster status", "rl cluster status --address 10.0.0.1:6379 --json"),
)
