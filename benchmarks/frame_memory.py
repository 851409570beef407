"""Memory of Atari transitions in the buffer of frames, measured on the process: while it fills, and after it is full.

    python benchmarks/frame_memory.py                              # a million transitions, then 100,000 more
    python benchmarks/frame_memory.py --capacity 100000            # a tenth of it

Plays Pong with random actions for a while, on ALE's own vector, and stores these games over and over: what is stored is
real, and filling does not wait for the emulator. Prints one JSON object: resident bytes per transition and in all,
what the buffer says of itself, what plain replay would take, and the growth over the steps after it is full.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import psutil

from rl_training.config.loading import parse_config
from rl_training.data.frame_buffer import FrameReplayBuffer
from rl_training.envs.factory import make_vector_env

OBS_SHAPE = (4, 84, 84)
NUM_ENVS = 8


def recorded_games(steps: int) -> list[tuple[Any, ...]]:
    """Transitions of `steps` steps of eight Pongs: (obs, actions, rewards, next obs, terminated, truncated)."""
    env_cfg = {"num_envs": NUM_ENVS, "vectorization": "native", "num_workers": 1, "wrappers": ["atari"]}
    env: Any = make_vector_env(parse_config({"algo": "dqn", "env_id": "PongNoFrameskip-v4", "env": env_cfg}), NUM_ENVS)
    rng, rows = np.random.default_rng(0), []
    obs, _ = env.reset()
    for _ in range(steps):
        actions = rng.integers(0, env.single_action_space.n, NUM_ENVS)
        obs = np.array(obs)
        next_obs, rewards, terminated, truncated, _ = env.step(actions)
        rows.append((obs, actions, np.array(rewards), np.array(next_obs), np.array(terminated), np.array(truncated)))
        obs = next_obs
    env.close()
    return rows


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def fill(buffer: FrameReplayBuffer, games: list[tuple[Any, ...]], transitions: int) -> None:
    for step in range(transitions // NUM_ENVS):
        buffer.add(*games[step % len(games)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, default=1_000_000, help="transitions that the buffer holds")
    parser.add_argument("--more", type=int, default=100_000, help="transitions after it is full")
    parser.add_argument("--recorded-steps", type=int, default=1_000, help="steps of eight games that are repeated")
    arguments = parser.parse_args()
    games = recorded_games(arguments.recorded_steps)
    before = resident()
    buffer = FrameReplayBuffer(arguments.capacity, OBS_SHAPE, (), num_envs=NUM_ENVS, action_dtype=np.int64)
    fill(buffer, games, arguments.capacity + arguments.capacity // 8)  # its spare frames too
    full = resident()
    fill(buffer, games, arguments.more)
    grown = resident() - full
    plain = 2 * int(np.prod(OBS_SHAPE)) * arguments.capacity
    print(
        json.dumps(
            {
                "transitions": len(buffer),
                "resident_bytes": full - before,
                "bytes_per_transition": round((full - before) / len(buffer), 1),
                "stated_bytes": int(buffer.memory_bytes),
                "plain_image_bytes": plain,
                "times_smaller": round(plain / (full - before), 2),
                "growth_bytes": grown,
                "growth_over": arguments.more,
            }
        )
    )


if __name__ == "__main__":
    main()
