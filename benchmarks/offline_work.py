"""The work of the offline contest: a dataset that both sides read, and the networks and batches that they are given.

A dataset of random numbers with the sizes of Hopper: speed does not depend on what is learnt.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

ROWS, EPISODE, OBS, ACTIONS = 100_000, 200, 11, 3
BATCHES = {"bc": 256, "td3_bc": 256, "iql": 256, "cql": 256, "rebrac": 256, "awac": 256}
"""Transitions per update; ReBRAC's own 1,024 would only multiply the products of both sides."""
NUM_SAMPLED = 10
"""Actions per state of CQL's penalty, from each of its three sources."""


def write_work(path: Path) -> None:
    """One npz file of flat columns; `timeouts` every 200 rows."""
    rng = np.random.default_rng(0)
    timeouts = (np.arange(ROWS) + 1) % EPISODE == 0
    np.savez(
        path,
        observations=rng.standard_normal((ROWS, OBS)).astype(np.float32),
        actions=rng.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32),
        rewards=rng.standard_normal(ROWS).astype(np.float32),
        terminals=np.zeros(ROWS, np.bool_),
        timeouts=timeouts,
    )


def read_work(path: str) -> dict[str, Any]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


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
