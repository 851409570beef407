"""Speed and memory of the replay buffers: 1M transitions of 4 numbers, as in the tables of the docs.

    python benchmarks/replay.py [prioritized]

Prints one line of JSON. `run.py --only replay,replay_prioritized` sets it beside its peers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from timing import calls_per_second, resident_mb

from rl_training.data import PrioritizedReplayBuffer, ReplayBuffer

CAPACITY, SMALL_CAPACITY = 1_000_000, 100_000
OBS_DIM, NUM_ENVS, BATCH = 4, 16, 256


def main(prioritized: bool) -> None:
    kind = PrioritizedReplayBuffer if prioritized else ReplayBuffer
    rng = np.random.default_rng(0)
    many, actions = np.ones((NUM_ENVS, OBS_DIM), np.float32), np.ones((NUM_ENVS, 1), np.float32)
    rewards, flags = np.ones(NUM_ENVS, np.float32), np.zeros(NUM_ENVS, np.bool_)

    ring = kind(SMALL_CAPACITY, OBS_DIM, 1, rng=rng)
    add_one = lambda: ring.add(many[0], actions[0], 1.0, many[0], False)  # noqa: E731
    add_1 = calls_per_second(add_one, SMALL_CAPACITY)

    before = resident_mb()
    buffer = kind(CAPACITY, OBS_DIM, 1, num_envs=NUM_ENVS, rng=rng)

    def add_many() -> None:
        buffer.add(many, actions, rewards, many, flags, flags)

    for _ in range(CAPACITY // NUM_ENVS):
        add_many()
    if prioritized:
        buffer.sample(BATCH)  # now what was added gets its priorities
    after = resident_mb()
    result: dict[str, Any] = {
        "add_1": add_1,
        "add_16": NUM_ENVS * calls_per_second(add_many, 20_000),
        "sample_256_numpy": calls_per_second(lambda: buffer.sample(BATCH), 5_000),
        "memory_mb": None if before is None or after is None else after - before,
        "nominal_mb": buffer.memory_bytes / 1e6,
    }
    if prioritized:
        indices, priorities = buffer.sample(BATCH)["indices"], rng.random(BATCH)
        result["update_256"] = calls_per_second(lambda: buffer.update_priorities(indices, priorities), 5_000)

        def train() -> None:
            add_many()
            batch = buffer.sample(BATCH)
            buffer.update_priorities(batch["indices"], priorities)

        result["train_256"] = calls_per_second(train, 2_000)
    import torch  # only now: tensors are what the peer hands out, and the memory above is without torch

    torch.set_num_threads(1)
    buffer.device = "cpu"
    result["sample_256"] = calls_per_second(lambda: buffer.sample(BATCH), 5_000)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:] == ["prioritized"])
