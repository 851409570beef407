"""Collection alone, by turns: runners on a Ray cluster beside the environments of this process and worker processes.

    python benchmarks/remote_collection.py            # 16 environments x 128 steps of 5 ms, a cluster of 2 nodes
    python benchmarks/remote_collection.py --quick    # shorter rollouts

Every way collects the same number of steps with the policy of PPO; nothing is learnt. Steps that sleep stand for an
environment that waits for something else, steps that work for one that computes: two of those at a time need two idle
cores. CartPole's steps take microseconds: there the way through a cluster cannot pay. Starts and ends its own cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import parse_config
from rl_training.distributed.local_cluster import LocalCluster

SECONDS = 5e-3
HERE = Path(__file__).parent
NAME = Path(__file__).stem
GOALS = {"sleeping": 1.8, "working": 1.6}
"""Speed of two runners beside `sync`."""


class Sleeping(CartPoleEnv):
    """Waits 5 ms in every step."""

    def step(self, action: Any) -> Any:
        time.sleep(SECONDS)
        return super().step(action)  # type: ignore[no-untyped-call]


class Working(CartPoleEnv):
    """Computes for 5 ms of CPU time in every step."""

    def step(self, action: Any) -> Any:
        end = time.thread_time() + SECONDS
        while time.thread_time() < end:
            pass
        return super().step(action)  # type: ignore[no-untyped-call]


ENVIRONMENTS = {"sleeping": f"{NAME}:Sleeping", "working": f"{NAME}:Working", "CartPole": "CartPole-v1"}
WAYS: dict[str, dict[str, Any]] = {
    "sync": {},
    "async, 2 workers": {"vectorization": "async", "num_workers": 2},
    "ray, 1 runner": {"collector": "ray", "runners": 1},
    "ray, 2 runners": {"collector": "ray", "runners": 2},
}


@contextmanager
def trainer(env_id: str, way: dict[str, Any], num_envs: int, num_steps: int, runs: Path) -> Iterator[Any]:
    config = {
        "algo": "ppo",
        "env_id": env_id,
        "output_dir": str(runs),
        "env": {"num_envs": num_envs, "max_episode_steps": 500, **way},
        "hparams": {"num_steps": num_steps},
        "training": {"num_eval_episodes": 0},
        "logging": {"terminal": False, "tensorboard": False},
    }
    built = build_trainer(parse_config(config))
    try:
        yield built
    finally:
        built.close()


def collect(built: Any) -> tuple[float, float]:
    """Wall seconds of one rollout, and the CPU seconds of this process in it."""
    wall, cpu = time.perf_counter(), time.process_time()
    built.collector.collect(built.num_steps, built.buffer)
    return time.perf_counter() - wall, time.process_time() - cpu


def contest(kind: str, runs: Path, num_envs: int, num_steps: int, turns: int) -> dict[str, Any]:
    """Rollouts of every way in turns, in one process; the first of each starts its environments and is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    cpu: dict[str, list[float]] = {name: [] for name in WAYS}
    contexts = {name: trainer(ENVIRONMENTS[kind], way, num_envs, num_steps, runs) for name, way in WAYS.items()}
    with pinned_threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = {name: context.__enter__() for name, context in contexts.items()}
        try:
            for turn in range(turns + 1):
                for name in WAYS:
                    wall, own = collect(built[name])
                    if turn:
                        seconds[name].append(wall)
                        cpu[name].append(own)
        finally:
            for context in contexts.values():
                context.__exit__(None, None, None)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "environment": kind,
        "steps": num_envs * num_steps,
        "milliseconds": {name: round(1000 * value, 1) for name, value in medians.items()},
        "all": {name: [round(1000 * value, 1) for value in values] for name, values in seconds.items()},
        "cpu_milliseconds_here": {name: round(1000 * statistics.median(values), 1) for name, values in cpu.items()},
        "speed_beside_sync": {name: round(medians["sync"] / value, 2) for name, value in medians.items()},
        "goal": GOALS.get(kind),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="shorter rollouts, fewer turns")
    parser.add_argument("--only", choices=list(ENVIRONMENTS), help="one kind of environment")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    turns, num_steps = (1, 32) if options.quick else (3, 128)
    with tempfile.TemporaryDirectory(prefix="rl-remote-") as folder:
        runs = Path(folder) / "runs"
        cluster = LocalCluster(runs)
        cluster.up(2, 2)  # room for the runners of both ways at a time; only one of them works
        try:
            for kind in [options.only] if options.only else ENVIRONMENTS:
                print(json.dumps(contest(kind, runs, 16, num_steps, turns)), flush=True)
        finally:
            cluster.down()


if __name__ == "__main__":
    main()
