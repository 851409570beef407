"""Contestant: Tianshou's replay buffers, filled and sampled as in replay.py, in the peers' environment."""

from __future__ import annotations

import json
import sys

import numpy as np
from tianshou.data import (
    Batch,
    PrioritizedReplayBuffer,
    PrioritizedVectorReplayBuffer,
    ReplayBuffer,
    VectorReplayBuffer,
)
from timing import calls_per_second, resident_mb

CAPACITY, SMALL_CAPACITY = 1_000_000, 100_000
OBS_DIM, NUM_ENVS, BATCH = 4, 16, 256
PRIORITIES = {"alpha": 0.6, "beta": 0.4}


def main(prioritized: bool) -> None:
    many, actions = np.ones((NUM_ENVS, OBS_DIM), np.float32), np.ones((NUM_ENVS, 1), np.float32)
    rewards, flags = np.ones(NUM_ENVS, np.float32), np.zeros(NUM_ENVS, np.bool_)
    names = ("obs", "act", "rew", "obs_next", "terminated", "truncated")
    one = Batch(dict(zip(names, (many[0], actions[0], rewards[0], many[0], False, False), strict=True)))
    rows = Batch(dict(zip(names, (many, actions, rewards, many, flags, flags), strict=True)))

    ring = PrioritizedReplayBuffer(SMALL_CAPACITY, **PRIORITIES) if prioritized else ReplayBuffer(SMALL_CAPACITY)
    add_1 = calls_per_second(lambda: ring.add(one), SMALL_CAPACITY // 4)

    before = resident_mb()
    if prioritized:
        buffer = PrioritizedVectorReplayBuffer(CAPACITY, NUM_ENVS, **PRIORITIES)
    else:
        buffer = VectorReplayBuffer(CAPACITY, NUM_ENVS)
    for _ in range(CAPACITY // NUM_ENVS):
        buffer.add(rows)
    after = resident_mb()
    result = {
        "add_1": add_1,
        "add_16": NUM_ENVS * calls_per_second(lambda: buffer.add(rows), 5_000),
        "sample_256_numpy": calls_per_second(lambda: buffer.sample(BATCH), 1_000),
        "memory_mb": None if before is None or after is None else after - before,
    }
    if prioritized:
        rng = np.random.default_rng(0)
        indices, priorities = buffer.sample(BATCH)[1], rng.random(BATCH)
        result["update_256"] = calls_per_second(lambda: buffer.update_weight(indices, priorities), 2_000)

        def train() -> None:
            buffer.add(rows)
            buffer.update_weight(buffer.sample(BATCH)[1], priorities)

        result["train_256"] = calls_per_second(train, 500)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:] == ["prioritized"])
