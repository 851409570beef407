"""Contestant: two seeds of PPO as threads over one compiled program, each the same to the last bit as alone.

    python benchmarks/jax_two_seeds.py '{"env_id": "CartPole-v1", "num_envs": 16, "backend": "jax", ...}'

Prints one line of JSON: the speed of both together, after each has been trained alone, which compiles the program.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from ppo import config

from rl_training import train
from rl_training.assembly.devices import pinned_threads
from rl_training.checkpointing.manager import CheckpointManager


def run(settings: dict[str, Any], seed: int, folder: str) -> tuple[dict[str, float], dict[str, Any]]:
    """One whole run: its speed, and everything its last checkpoint holds but the logs, which hold times."""
    scratch = Path(settings["scratch"]) / folder
    scratch.mkdir(exist_ok=True)
    laps = scratch / f"laps{seed}.json"
    result = train(config({**settings, "seed": seed, "scratch": str(scratch)}, laps))
    parts = CheckpointManager(result.run_dir).load("latest").parts
    return json.loads(laps.read_text()), {name: part for name, part in parts.items() if name != "logs"}


def main() -> None:
    settings = json.loads(sys.argv[1])
    seeds = (2 * settings["seed"], 2 * settings["seed"] + 1)
    with pinned_threads(1, "jax"), ThreadPoolExecutor(2) as pool:
        alone = [run(settings, seed, "alone") for seed in seeds]
        together = list(pool.map(lambda seed: run(settings, seed, "together"), seeds))
    for (_, expected), (_, found) in zip(alone, together, strict=True):
        np.testing.assert_equal(found, expected)
    steps = sum(laps["timed_env_steps"] for laps, _ in together)
    seconds = max(laps["timed_seconds"] for laps, _ in together)
    speed = {"timed_env_steps": steps, "timed_seconds": seconds, "env_steps_per_second": steps / seconds}
    print(json.dumps(speed))


if __name__ == "__main__":
    main()
