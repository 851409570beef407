"""What a checkpoint of a replay buffer costs when 1% of it is new, beside one that writes the whole buffer.

    python benchmarks/replay_checkpoint.py [--folder DIR]

1M transitions of 17 + 6 float32 numbers, full. Prints one line of JSON: seconds and megabytes of a checkpoint that has
to write everything and of one after 1% new transitions, medians of several in turns, and their ratios. Both write each
row twice, sync and read back. `one_copy_seconds` is a plain dump, one copy in one file; `empty_seconds` is a checkpoint
without a buffer: what syncing, publishing and retiring cost alone. `--folder` names a folder on the disk to measure.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.row_log import LogIdentity
from rl_training.data import ReplayBuffer
from rl_training.system.atomic_io import fault_hook

CAPACITY, OBS_DIM, ACTION_DIM, ROUNDS = 1_000_000, 17, 6, 5
NEW = CAPACITY // 100
WAYS = ("full", "incremental", "one_copy", "empty")


def measure(manager: CheckpointManager, parts: dict[str, Any], step: int) -> tuple[float, float]:
    """Seconds and megabytes of a save."""
    sizes: dict[Path, int] = {}

    def count(operation: str, path: Path) -> None:
        if operation == "fsync" and path.is_file():
            sizes[path] = path.stat().st_size

    with fault_hook(count):
        started = time.perf_counter()
        manager.save(parts, step=step)
        seconds = time.perf_counter() - started
    return seconds, sum(sizes.values()) / 1e6


def states(buffer: ReplayBuffer) -> dict[str, dict[str, Any]]:
    """The buffer as each way of saving takes it."""
    state = buffer.state_dict()
    log = state["rows"]
    return {
        "full": {**state, "rows": replace(log, identity=LogIdentity())},
        "incremental": state,
        "one_copy": {**state, "rows": dict(log.columns)},
        "empty": {},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where to write; the system's folder for temporary files by default")
    folder = parser.parse_args().folder
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(CAPACITY, OBS_DIM, ACTION_DIM, rng=rng)

    def fill(count: int) -> None:
        obs, actions = rng.random((count, OBS_DIM), np.float32), rng.random((count, ACTION_DIM), np.float32)
        buffer.add(obs, actions, rng.random(count, np.float32), obs, np.zeros(count, np.bool_))

    for _ in range(CAPACITY // NEW + 7):  # past the end of the ring
        fill(NEW)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        managers = {way: CheckpointManager(Path(scratch) / way, keep_last=2) for way in WAYS}
        managers["incremental"].save({"buffer": buffer.state_dict()}, step=0)
        for step in range(1, ROUNDS + 1):
            fill(NEW)
            for way, state in states(buffer).items():
                found[way].append(measure(managers[way], {"buffer": state}, step))
    medians = {way: [statistics.median(values) for values in zip(*pairs, strict=True)] for way, pairs in found.items()}
    result = {f"{way}_{name}": medians[way][i] for way in WAYS for i, name in enumerate(("seconds", "mb"))}
    for i, name in enumerate(("seconds", "mb")):
        result[f"{name}_ratio"] = medians["incremental"][i] / medians["full"][i]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
