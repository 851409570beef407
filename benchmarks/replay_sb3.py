"""Contestant: the replay buffer of Stable-Baselines3, filled and sampled as in replay.py, in the peers' environment."""

from __future__ import annotations

import json

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from timing import calls_per_second, resident_mb

CAPACITY, SMALL_CAPACITY = 1_000_000, 100_000
OBS_DIM, NUM_ENVS, BATCH = 4, 16, 256


def main() -> None:
    torch.set_num_threads(1)
    obs_space = spaces.Box(-1.0, 1.0, (OBS_DIM,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    many, actions = np.ones((NUM_ENVS, OBS_DIM), np.float32), np.ones((NUM_ENVS, 1), np.float32)
    rewards, flags = np.ones(NUM_ENVS, np.float32), np.zeros(NUM_ENVS, np.bool_)
    infos: list[dict[str, bool]] = [{} for _ in range(NUM_ENVS)]

    ring = ReplayBuffer(SMALL_CAPACITY, obs_space, action_space, device="cpu", n_envs=1)
    one = (many[:1], many[:1], actions[:1], rewards[:1], flags[:1], infos[:1])
    add_1 = calls_per_second(lambda: ring.add(*one), SMALL_CAPACITY)

    before = resident_mb()
    buffer = ReplayBuffer(CAPACITY, obs_space, action_space, device="cpu", n_envs=NUM_ENVS)

    def add_many() -> None:
        buffer.add(many, many, actions, rewards, flags, infos)

    for _ in range(CAPACITY // NUM_ENVS):
        add_many()
    after = resident_mb()
    result = {
        "add_1": add_1,
        "add_16": NUM_ENVS * calls_per_second(add_many, 20_000),
        "sample_256": calls_per_second(lambda: buffer.sample(BATCH), 5_000),
        "memory_mb": None if before is None or after is None else after - before,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
