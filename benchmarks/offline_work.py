"""The work of the offline contests: a dataset that both sides read, batches, and what an update multiplies.

A dataset of random numbers with the sizes of Hopper: speed does not depend on what is learnt.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

ROWS, EPISODE, OBS, ACTIONS = 100_000, 200, 11, 3
BATCHES = {"bc": 256, "td3_bc": 256, "iql": 256, "cql": 256, "rebrac": 256, "awac": 256}
"""Transitions per update; ReBRAC's own 1,024 would only multiply the products of both sides."""
NUM_SAMPLED = 10
"""Actions per state of CQL's penalty, from each of its three sources."""


def work() -> dict[str, Any]:
    """Flat columns; `timeouts` every 200 rows."""
    rng = np.random.default_rng(0)
    return {
        "observations": rng.standard_normal((ROWS, OBS)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32),
        "rewards": rng.standard_normal(ROWS).astype(np.float32),
        "terminals": np.zeros(ROWS, np.bool_),
        "timeouts": (np.arange(ROWS) + 1) % EPISODE == 0,
    }


def summary(algo: str, widths: list[int], updates: int, cpu_seconds: float) -> dict[str, float]:
    """What a contestant prints."""
    rate = updates / cpu_seconds
    share = rate * flops(algo, widths, BATCHES[algo]) / sgemm_flops(widths[0], BATCHES[algo])
    return {"updates_per_cpu_second": rate, "share": 100 * share}


def sgemm_flops(width: int, rows: int, seconds: float = 1.0) -> float:
    """Floating-point operations per second of a product (rows, width) x (width, width) in float32."""
    one, other = np.ones((rows, width), np.float32), np.ones((width, width), np.float32)
    count, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        one @ other
        count += 1
    return 2.0 * rows * width * width * count / (time.process_time() - began)


def flops(algo: str, widths: list[int], batch: int) -> float:
    """Floating-point operations of the matrix products of one update: 2 per weight and row forward, 4 more backward."""

    def network(inputs: int, outputs: int) -> float:
        sizes = [inputs, *widths, outputs]
        return 2.0 * sum(a * b for a, b in itertools.pairwise(sizes))

    actor, critic, value = network(OBS, ACTIONS), network(OBS + ACTIONS, 1), network(OBS, 1)
    forward_backward = 3.0
    per_row = {
        "bc": forward_backward * actor,
        # target actor, 2 target critics, 2 critics; every second update: actor and 2 critics' inputs
        "td3_bc": actor + 2 * critic + forward_backward * 2 * critic + 0.5 * (forward_backward * actor + 3 * critic),
        "rebrac": actor + 2 * critic + forward_backward * 2 * critic + 0.5 * (forward_backward * actor + 6 * critic),
        "iql": 2 * critic + value + forward_backward * (value + 2 * critic + actor),
        "awac": 2 * actor + 6 * critic + forward_backward * (2 * critic + actor),
        "cql": 3 * actor
        + 2 * critic
        + forward_backward * 2 * critic * (3 * NUM_SAMPLED + 1)
        + forward_backward * actor
        + 2 * 3 * critic,
    }
    return batch * per_row[algo]
