"""When what happens in a chunk, worked out on the host: env steps of each rollout, and which updates they owe.

A compiled program has 32 bits. Counts of a long run do not fit, and a share such as 1/2,048 of them does not come out
exact in float32. So the host, whose integers have no end, writes a table for every chunk and the program reads it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.jax.types import JaxAlgorithm
from rl_training.types import Array

MAX_ROLLOUTS = 64
"""Rollouts per chunk at most: room for their metrics and rewards is part of the program."""
WORD = 2**32


class Timetable(NamedTuple):
    """A row per rollout of a chunk, a column per step and one for the end; without replay, one column in all."""

    env_steps: Any
    """Env steps done, (MAX_ROLLOUTS, T + 1) float32: for schedules."""
    learns: Any = ()
    """Calls of `learn` done, modulo 2^32: (MAX_ROLLOUTS, T + 1) uint32."""


def schedule_of(algorithm: JaxAlgorithm) -> ReplaySchedule | None:
    """When `learn` is called, with how much: that of the algorithm, for as many updates as a call makes."""
    schedule, updates = algorithm.replay, algorithm.updates_per_learn
    if schedule is None or updates == 1:
        return schedule
    return replace(schedule, batch_size=schedule.batch_size * updates, updates_per_step=schedule.rate / updates)


def timetable(algorithm: JaxAlgorithm, num_envs: int, env_steps: int, count: int) -> Timetable:
    """Of the next `count` rollouts after `env_steps`; further rows are not read."""
    schedule, length = schedule_of(algorithm), algorithm.rollout_length
    steps = np.arange(1 if schedule is None else length + 1)
    counts = env_steps + num_envs * (length * np.arange(count)[:, None] + steps)
    in_floats = padded(counts.astype(np.float32))
    return Timetable(in_floats) if schedule is None else Timetable(in_floats, padded(updates_done(schedule, counts)))


def updates_done(schedule: ReplaySchedule, counts: Array) -> Array:
    """`schedule.done` of many counts of env steps, of which the first is the smallest, modulo 2^32."""
    times, per = schedule.rate.numerator, schedule.rate.denominator
    started = np.maximum(counts - schedule.learning_starts, 0)
    first = int(started.flat[0])
    whole, rest = divmod(first * times, per)
    later: Array = started - first
    if rest + int(later.max()) * times >= 2**62:
        later = later.astype(object)  # integers without end
    updates: Array = (whole % WORD + (rest + later * times) // per) % WORD
    return updates.astype(np.uint32)


def padded(rows: Array) -> Array:
    """The rows and zeros behind them: the program has one shape for chunks of any length."""
    table = np.zeros((MAX_ROLLOUTS, *rows.shape[1:]), rows.dtype)
    table[: len(rows)] = rows
    return table
