"""Contestant: cpprb's replay buffers, filled and sampled as in replay.py, in the peers' environment."""

from __future__ import annotations

import json
import sys

import numpy as np
from cpprb import PrioritizedReplayBuffer, ReplayBuffer
from timing import calls_per_second, resident_mb

CAPACITY, SMALL_CAPACITY = 1_000_000, 100_000
OBS_DIM, NUM_ENVS, BATCH = 4, 16, 256
FIELDS = {
    "obs": {"shape": OBS_DIM},
    "act": {"shape": 1},
    "rew": {},
    "next_obs": {"shape": OBS_DIM},
    "done": {"dtype": np.bool_},
    "truncated": {"dtype": np.bool_},
}


def main(prioritized: bool) -> None:
    def build(capacity: int) -> ReplayBuffer:
        return PrioritizedReplayBuffer(capacity, FIELDS, alpha=0.6) if prioritized else ReplayBuffer(capacity, FIELDS)

    many, actions = np.ones((NUM_ENVS, OBS_DIM), np.float32), np.ones((NUM_ENVS, 1), np.float32)
    rewards, flags = np.ones(NUM_ENVS, np.float32), np.zeros(NUM_ENVS, np.bool_)
    one = {"obs": many[0], "act": actions[0], "rew": 1.0, "next_obs": many[0], "done": False, "truncated": False}
    rows = {"obs": many, "act": actions, "rew": rewards, "next_obs": many, "done": flags, "truncated": flags}

    ring = build(SMALL_CAPACITY)
    add_1 = calls_per_second(lambda: ring.add(**one), SMALL_CAPACITY)

    before = resident_mb()
    buffer = build(CAPACITY)
    for _ in range(CAPACITY // NUM_ENVS):
        buffer.add(**rows)
    after = resident_mb()
    result = {
        "add_1": add_1,
        "add_16": NUM_ENVS * calls_per_second(lambda: buffer.add(**rows), 20_000),
        "sample_256_numpy": calls_per_second(lambda: buffer.sample(BATCH), 5_000),
        "memory_mb": None if before is None or after is None else after - before,
    }
    if prioritized:
        indexes, rng = buffer.sample(BATCH)["indexes"], np.random.default_rng(0)
        priorities = rng.random(BATCH)
        result["update_256"] = calls_per_second(lambda: buffer.update_priorities(indexes, priorities), 5_000)

        def train() -> None:
            buffer.add(**rows)
            buffer.update_priorities(buffer.sample(BATCH)["indexes"], priorities)

        result["train_256"] = calls_per_second(train, 2_000)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:] == ["prioritized"])
