"""What a checkpoint of a replay buffer costs when 1% of it is new, beside a dump of the whole buffer.

    python benchmarks/replay_checkpoint.py [--folder DIR]

1M transitions of 17 + 6 float32 numbers, full. Prints one line of JSON: seconds and megabytes of a dump (every array in
one file, as a checkpoint without segments would hold it) and of a checkpoint after 1% new transitions, medians of
several in turns, and their ratios. Both are synced and read back. `--folder` names a folder on the disk to measure.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.atomic_io import fault_hook
from rl_training.checkpointing import CheckpointManager
from rl_training.data import ReplayBuffer

CAPACITY, OBS_DIM, ACTION_DIM, ROUNDS = 1_000_000, 17, 6, 5
NEW = CAPACITY // 100


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where to write; the system's folder for temporary files by default")
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(CAPACITY, OBS_DIM, ACTION_DIM, rng=rng)

    def fill(count: int) -> None:
        obs, actions = rng.random((count, OBS_DIM), np.float32), rng.random((count, ACTION_DIM), np.float32)
        buffer.add(obs, actions, rng.random(count, np.float32), obs, np.zeros(count, np.bool_))

    for _ in range(CAPACITY // NEW + 7):  # past the end of the ring
        fill(NEW)
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as folder:
        dumps, runs = CheckpointManager(Path(folder) / "dump"), CheckpointManager(Path(folder) / "run")
        first, _ = measure(runs, {"buffer": buffer.state_dict()}, 0)
        whole, new = [], []
        for step in range(1, ROUNDS + 1):
            state = buffer.state_dict()
            rows = dict(state.pop("rows").columns)
            whole.append(measure(dumps, {"buffer": {**state, "rows": rows}}, step))
            fill(NEW)
            new.append(measure(runs, {"buffer": buffer.state_dict()}, step))
    dump, incremental = ([statistics.median(values) for values in zip(*pairs, strict=True)] for pairs in (whole, new))
    result = {
        "dump_seconds": dump[0],
        "dump_mb": dump[1],
        "first_seconds": first,
        "incremental_seconds": incremental[0],
        "incremental_mb": incremental[1],
        "seconds_ratio": incremental[0] / dump[0],
        "mb_ratio": incremental[1] / dump[1],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
