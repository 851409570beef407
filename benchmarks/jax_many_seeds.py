"""Contestant: many seeds of PPO on the classic control tasks, each an ordinary run with a final evaluation.

    python benchmarks/jax_many_seeds.py --seeds 3 --output-dir /tmp/bench

Prints one line of JSON: runs, minutes, env steps per second of all together, seconds and mean return of every task.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

TASKS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")


def train(env_id: str, seeds: int, timesteps: int, folder: str) -> dict[str, Any]:
    """What `rl train` prints about a group of seeds."""
    flags = {
        "--algo": "ppo",
        "--env-id": env_id,
        "--backend": "jax",
        "--seed": f"0..{seeds - 1}",
        "--num-envs": 16,
        "--total-timesteps": timesteps,
        "--training.eval-at-start": "false",
        "--training.eval-frequency": 0,
        "--training.num-eval-episodes": 10,
        "--training.eval-lane": "compiled",
        "--training.checkpoint-frequency": 0,
        "--output-dir": folder,
    }
    words = [f"{flag}={value}" for flag, value in flags.items()]
    command = [sys.executable, "-m", "rl_training", "train", *words, "--json"]
    group: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="runs of each task (default 100)")
    parser.add_argument("--timesteps", type=int, default=100_000, help="env steps of each run (default 100,000)")
    parser.add_argument("--output-dir", default="runs/many_seeds", help="where the runs go (default runs/many_seeds)")
    arguments = parser.parse_args()
    tasks = {}
    begin = time.perf_counter()
    for env_id in TASKS:
        start = time.perf_counter()
        group = train(env_id, arguments.seeds, arguments.timesteps, arguments.output_dir)
        seconds = time.perf_counter() - start
        tasks[env_id] = {"seconds": round(seconds, 1), "return": group["summary"]["return"]["mean"]}
        print(f"{env_id}: {tasks[env_id]}", file=sys.stderr, flush=True)
    runs, seconds = len(TASKS) * arguments.seeds, time.perf_counter() - begin
    speed = {"runs": runs, "minutes": seconds / 60, "env_steps_per_second": runs * arguments.timesteps / seconds}
    print(json.dumps({**speed, "tasks": tasks}))


if __name__ == "__main__":
    main()
