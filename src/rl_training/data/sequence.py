"""Sampling sequences of consecutive steps of one environment from a ring, for recurrent learners and world models."""

from __future__ import annotations

import numpy as np

from rl_training.types import Array


def sequence_starts(first: int, written: int, num_envs: int, length: int) -> tuple[int, int]:
    """The rows [start, stop) with which complete sequences within rows [first, written) begin; stop may be less.

    Once rows have been overwritten, no sequence starts at the oldest step: whether an episode began there is unknown.
    """
    return (first + num_envs if first else 0), written - (length - 1) * num_envs


def draw_sequences(
    first: int, written: int, num_envs: int, batch_size: int, length: int, rng: np.random.Generator
) -> Array:
    """Row numbers (B, L), sampled uniformly among the sequences of `length` steps within rows [first, written)."""
    start, stop = sequence_starts(first, written, num_envs, length)
    if length < 1 or stop <= start:
        raise ValueError(
            f"the replay buffer holds no sequence of {length} steps yet: it has {(written - first) // num_envs} steps "
            f"of each of {num_envs} environments"
        )
    starts = rng.integers(start, stop, size=batch_size)
    return starts[:, None] + num_envs * np.arange(length)
