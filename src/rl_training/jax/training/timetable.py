"""The schedule of a chunk, computed on the host: env steps of each rollout, and the updates due after each step.

A compiled program has 32-bit numbers. Counts of a long run overflow them, and a fraction such as 1/2,048 of a count is
not exact in float32. So the host, with Python's arbitrary-precision integers, writes a table for every chunk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.jax.types import JaxAlgorithm
from rl_training.types import Array

MAX_ROLLOUTS = 64
"""Largest number of rollouts per chunk: the program allocates their metrics and rewards."""
WORD = 2**32


class Timetable(NamedTuple):
    """One row per rollout of a chunk, one column per step and one for the end; without replay, a single column."""

    env_steps: Any
    """Env steps so far, (MAX_ROLLOUTS, T + 1) float32, for schedules."""
    learns: Any = ()
    """Calls of `learn` so far, modulo 2^32, (MAX_ROLLOUTS, T + 1) uint32."""


def schedule_of(algorithm: JaxAlgorithm) -> ReplaySchedule | None:
    """The algorithm's replay schedule, rescaled to calls of `learn` that make `updates_per_learn` updates each."""
    schedule, updates = algorithm.replay, algorithm.updates_per_learn
    if schedule is None or updates == 1:
        return schedule
    return replace(schedule, batch_size=schedule.batch_size * updates, updates_per_step=schedule.rate / updates)


def timetable(algorithm: JaxAlgorithm, num_envs: int, env_steps: int, count: int) -> Timetable:
    """The table for the next `count` rollouts after `env_steps`; further rows are not read."""
    schedule, length = schedule_of(algorithm), algorithm.rollout_length
    steps = np.arange(1 if schedule is None else length + 1)
    counts = env_steps + num_envs * (length * np.arange(count)[:, None] + steps)
    in_floats = padded(counts.astype(np.float32))
    if schedule is None:
        return Timetable(in_floats)
    if algorithm.sequences is not None:
        # what is due before the first sequence is complete is left out, as in the host lane
        counts = np.maximum(counts, (algorithm.sequences.length - 1) * num_envs)
    return Timetable(in_floats, padded(updates_done(schedule, counts)))


def updates_done(schedule: ReplaySchedule, counts: Array) -> Array:
    """`schedule.done` for an array of env step counts, the smallest first, modulo 2^32."""
    times, per = schedule.rate.numerator, schedule.rate.denominator
    started = np.maximum(counts - schedule.learning_starts, 0)
    first = int(started.flat[0])
    whole, rest = divmod(first * times, per)
    later: Array = started - first
    if rest + int(later.max()) * times >= 2**62:
        later = later.astype(object)  # Python integers, which do not overflow
    updates: Array = (whole % WORD + (rest + later * times) // per) % WORD
    return updates.astype(np.uint32)


def padded(rows: Array) -> Array:
    """The rows, padded with zeros: the program has one shape for chunks of any length."""
    table = np.zeros((MAX_ROLLOUTS, *rows.shape[1:]), rows.dtype)
    table[: len(rows)] = rows
    return table
