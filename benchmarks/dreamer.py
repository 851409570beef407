"""CPU time of Dreamer's update and of one decision, beside what the machine's matrix product would allow.

    python benchmarks/dreamer.py [--size size1m] [--updates 5] [--backends torch,jax]

One thread. The update is that of the reference code's setting for vectors: 16 sequences of 64 steps, 15 imagined steps
from every state, 24 observations and 6 actions. `sgemm` is the largest rate of a float32 product on this core; the
update's ratio to it is its time beside that of as many multiplications. Backends take turns, an update each; JAX
compiles before. Acting is timed for 1 and 16 environments, in NumPy and through the torch modules, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from time import process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from rl_training.algorithms.world_models.dreamer import Dreamer
from rl_training.algorithms.world_models.latent_policy import LatentPolicy
from rl_training.build_context import BuildContext
from rl_training.hparams.dreamer import SPEC, DreamerConfig
from rl_training.types import BoxSpec

OBS, ACTIONS, B, T = 24, 6, 16, 64
GFLOP = {"size1m": 30.0}
"""Billions of floating-point operations of one update, forward and backward."""


def box(size: int) -> BoxSpec:
    return BoxSpec(np.full(size, -1, np.float32), np.full(size, 1, np.float32), np.dtype(np.float32))


def batch(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Replayed rows; `spec` says what is stored of states."""
    rng = np.random.default_rng(0)
    shape, no = (B, T), np.zeros((B, T), bool)
    return {
        "obs": rng.standard_normal((*shape, OBS)).astype(np.float32),
        "next_obs": rng.standard_normal((*shape, OBS)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (*shape, ACTIONS)).astype(np.float32),
        "rewards": rng.standard_normal(shape).astype(np.float32),
        "terminated": no,
        "truncated": no,
        "is_first": no,
        "valid": ~no,
        "carry": {name: np.zeros((B, *part), dtype) for name, (part, dtype) in spec.items()},
    }


def learner(backend: str, hparams: DreamerConfig) -> Any:
    """A fresh Dreamer of one backend."""
    if backend == "torch":
        return Dreamer(BuildContext(box(OBS), box(ACTIONS)), hparams)
    from rl_training.jax import runtime
    from rl_training.jax.host import build_agent

    runtime.configure(num_threads=1)
    return build_agent(BuildContext(box(OBS), box(ACTIONS)), SPEC, hparams)


def seconds(action: Callable[[], Any], repeats: int) -> float:
    """CPU seconds of one call, the median of `repeats`."""
    found = []
    for _ in range(repeats):
        began = process_time()
        action()
        found.append(process_time() - began)
    return float(np.median(found))


def sgemm_rate() -> float:
    """Billions of operations per second of the fastest float32 product."""
    best = 0.0
    for size in (256, 512, 1024):
        a = torch.randn(size, size)
        best = max(best, 2e-9 * size**3 / seconds(partial(torch.mm, a, a), 9))
    return best


def acting(dreamer: Dreamer, rows: int) -> dict[str, float]:
    """Microseconds of one decision for `rows` environments."""
    policy, rng = dreamer.policy, np.random.default_rng(0)
    obs, carry = rng.standard_normal((rows, OBS)).astype(np.float32), policy.initial_carry(rows)
    going_on = np.zeros(rows, bool)
    ways: dict[str, Callable[[], Any]] = {
        "numpy": lambda: policy.decide(obs, carry, going_on, rng),
        "torch": lambda: LatentPolicy.decide(policy, obs, carry, going_on, rng),
    }
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(20):  # in turns
        for name, way in ways.items():
            times[name].append(seconds(way, 5))
    return {name: 1e6 * float(np.median(values)) for name, values in times.items()}


def update_seconds(learners: Mapping[str, Any], rows: dict[str, Any], updates: int) -> dict[str, float]:
    """CPU seconds of one update of each backend, in turns, after two that compile and warm up."""
    times: dict[str, list[float]] = {name: [] for name in learners}
    for turn in range(updates + 2):
        for name, one in learners.items():
            took = seconds(partial(one.update, rows), 1)
            if turn >= 2:
                times[name].append(took)
    return {name: float(np.median(values)) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="size1m")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--backends", default="torch,jax")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hparams = DreamerConfig(size=options.size, batch_size=B)
    dreamer = learner("torch", hparams)
    learners = {name: dreamer if name == "torch" else learner(name, hparams) for name in options.backends.split(",")}
    rate = sgemm_rate()
    result: dict[str, Any] = {"size": options.size, "sgemm_gflops": round(rate, 1)}
    took = update_seconds(learners, batch(dreamer.model.dynamics.state_spec), options.updates)
    result["update_seconds"] = {name: round(value, 3) for name, value in took.items()}
    if options.size in GFLOP:
        result["update_over_sgemm"] = {n: round(value * rate / GFLOP[options.size], 2) for n, value in took.items()}
    for count in (1, 16):
        times = acting(dreamer, count)
        result[f"acting_{count}_us"] = {name: round(value) for name, value in times.items()}
        result[f"acting_{count}_ratio"] = round(times["numpy"] / times["torch"], 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
