"""`rl cluster check`: whether every node of a Ray cluster could run members, before any is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.exit_codes import EXIT_DIFFERENT
from rl_training.cli.flags import json_flag, output_dir_flag, text
from rl_training.cli.output import print_json, show
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    address: str | None = text("address of the cluster (default: that of 'rl cluster up')", "HOST:PORT")
    output_dir: str | None = output_dir_flag("folder that every node must share (default runs)")
    json: bool = json_flag()


def run(options: CheckOptions) -> int:
    from rl_training.distributed.local_cluster import ADDRESS_CURE, find_address
    from rl_training.distributed.ray_executor import RayDriver, problems_of, require_ray
    from rl_training.system.machine import versions

    require_ray()
    folder = Path(options.output_dir or "runs").expanduser().absolute()
    address = find_address(options.address, folder, cure=ADDRESS_CURE)
    driver = RayDriver(address, cure=ADDRESS_CURE)
    try:
        nodes = driver.check(folder)
    finally:
        driver.end()
    problems = problems_of(nodes, folder, versions())
    if options.json:
        print_json({"address": address, "nodes": nodes, "problems": problems})
    elif problems:
        show("\n".join(problems))
    else:
        show(f"{len(nodes)} nodes at {address} can run members: they share '{folder}' and have the same versions")
    return EXIT_DIFFERENT if problems else 0


COMMAND = Command(
    name="cluster check",
    summary="check that every node shares the output directory and has the same versions",
    usage="[flags]",
    options=CheckOptions,
    run=run,
    examples=("rl cluster check", "rl cluster check --address 10.0.0.1:6379 --output-dir /shared/runs"),
    notes="Every node writes, locks, renames and reads a probe file. The same check is made before the first run of a "
    "sweep starts. Exit code 3 if something differs.",
)
