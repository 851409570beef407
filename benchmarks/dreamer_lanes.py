"""CPU time of Dreamer in torch and in the two lanes of JAX: the same preset, the same updates after the same env steps.

    python benchmarks/dreamer_lanes.py [--preset dreamer/catch] [--env-steps 2048] [--lanes torch,host,compiled]

One thread and one process for all of it. Each trainer first runs until it has learnt for a while, so that programs are
compiled, and is then timed for `--env-steps` steps of acting, environment, replay and updates, in turns of a block with
the others. Seconds are CPU seconds, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import json
import os
from time import process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rl_training.assembly.build import build_trainer
from rl_training.config.loading import load_config

LANES: dict[str, dict[str, Any]] = {
    "torch": {"backend": "torch"},
    "host": {"backend": "jax", "lane": "host"},
    "compiled": {"backend": "jax", "lane": "compiled"},
}
BLOCK = 256
"""Env steps that a trainer advances by in its turn."""


def advance(trainer: Any, env_steps: int) -> None:
    """Train for at least so many env steps."""
    goal = trainer.progress.env_steps + env_steps
    while trainer.progress.env_steps < goal:
        trainer.train_step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="dreamer/catch")
    parser.add_argument("--env-steps", type=int, default=2048)
    parser.add_argument("--lanes", default="torch,host,compiled")
    options = parser.parse_args()
    trainers: dict[str, Any] = {}
    first: dict[str, float] = {}
    for lane in options.lanes.split(","):
        cfg = load_config(options.preset, {**LANES[lane], "training.total_timesteps": 10_000_000})
        trainers[lane] = build_trainer(cfg)
        began = process_time()
        advance(trainers[lane], cfg.hparams.learning_starts + BLOCK)
        first[lane] = process_time() - began
    seconds, updates = dict.fromkeys(trainers, 0.0), dict.fromkeys(trainers, 0)
    for _ in range(options.env_steps // BLOCK):
        for lane, trainer in trainers.items():
            before, began = trainer.progress.updates, process_time()
            advance(trainer, BLOCK)
            seconds[lane] += process_time() - began
            updates[lane] += trainer.progress.updates - before
    each = {lane: 1e3 * seconds[lane] / max(updates[lane], 1) for lane in trainers}
    for lane, milliseconds in each.items():
        result = {
            "lane": lane,
            "ms_per_update": round(milliseconds, 2),
            "updates": updates[lane],
            "torch_over_this": round(each["torch"] / milliseconds, 2) if "torch" in each else None,
            "first_block_seconds": round(first[lane], 1),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
