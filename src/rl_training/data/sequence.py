"""Runs of consecutive steps of one environment out of a ring, for learners with a memory."""

from __future__ import annotations

import numpy as np

from rl_training.types import Array


def draw_sequences(
    first: int, written: int, num_envs: int, batch_size: int, length: int, rng: np.random.Generator
) -> Array:
    """Numbers (B, L) of rows, drawn uniformly among the runs of `length` steps that lie within rows [first, written).

    Once rows have been overwritten, the oldest step starts no run: whether an episode began there is no longer known.
    """
    start = first + num_envs if first else 0
    stop = written - (length - 1) * num_envs
    if length < 1 or stop <= start:
        raise ValueError(
            f"the replay buffer holds no run of {length} steps yet: it has {(written - first) // num_envs} of each of "
            f"{num_envs} environments"
        )
    starts = rng.integers(start, stop, size=batch_size)
    return starts[:, None] + num_envs * np.arange(length)
