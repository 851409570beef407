"""End-aligned replay: sub-environments with different last seeds arrive at the same moment."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.envs.vector.native_log import FIRST_CAPACITY, NativeLog
from rl_training.types import Array


class Vector:
    """Sub-environment i is a hash of its seed and of every action since; a step changes all of them."""

    def __init__(self, num_envs: int) -> None:
        self.state = [0] * num_envs
        self.calls: list[Any] = []

    def reset(self, rows: Array, seeds: Array) -> list[int]:
        for row, seed in zip(np.flatnonzero(rows), seeds, strict=True):
            self.state[row] = hash((int(seed),))
        self.calls.append(("reset", np.flatnonzero(rows).tolist()))
        return list(self.state)

    def step(self, actions: Array) -> list[int]:
        self.state = [hash((state, int(action))) for state, action in zip(self.state, actions, strict=True)]
        self.calls.append("step")
        return list(self.state)


def new_log(num_envs: int) -> NativeLog:
    return NativeLog(num_envs, (), np.dtype(np.int64))


def test_every_row_arrives_where_it_was() -> None:
    rng = np.random.default_rng(0)
    for trial in range(50):
        count = int(rng.integers(1, 5))
        live, log = Vector(count), new_log(count)
        everything = np.ones(count, bool)
        seeds = rng.integers(1000, size=count)
        log.begin(everything, seeds)
        live.reset(everything, seeds)
        for _ in range(int(rng.integers(0, 300))):
            actions = rng.integers(5, size=count)
            live.step(actions)
            log.append(actions)
            rows = rng.random(count) < 0.02
            if rows.any():
                seeds = rng.integers(1000, size=int(rows.sum()))
                live.reset(rows, seeds)
                log.begin(rows, seeds)
        fresh, loaded = Vector(count), new_log(count)
        loaded.load_state_dict(log.state_dict())
        assert loaded.replay(fresh.reset, fresh.step) == live.state, trial
        np.testing.assert_array_equal(loaded.lengths, log.lengths)
        np.testing.assert_array_equal(loaded.actions(), log.state_dict()["actions"])


def test_it_holds_no_more_than_since_the_oldest_seed() -> None:
    log = new_log(2)
    log.begin(np.ones(2, bool), np.array([1, 2]))
    for i in range(10 * FIRST_CAPACITY):
        log.append(np.array([i, i]))
        if i % 50 == 49:
            log.begin(np.array([True, False]), np.array([i]))
        if i % 70 == 69:
            log.begin(np.array([False, True]), np.array([i]))
    assert len(log._actions) <= 4 * FIRST_CAPACITY
    assert len(log.actions()) == max(log.lengths)


def test_what_was_before_a_rows_seed_is_not_kept() -> None:
    log = new_log(2)
    log.begin(np.ones(2, bool), np.array([1, 2]))
    log.append(np.array([3, 4]))
    log.begin(np.array([True, False]), np.array([9]))
    log.append(np.array([5, 6]))
    state = log.state_dict()
    assert state["actions"].tolist() == [[0, 4], [5, 6]]
    assert (state["seeds"].tolist(), state["lengths"].tolist()) == ([9, 2], [1, 2])


def test_rows_of_one_age_are_reset_once() -> None:
    log = new_log(2)
    log.begin(np.ones(2, bool), np.array([1, 2]))
    log.append(np.array([0, 0]))
    vector = Vector(2)
    log.replay(vector.reset, vector.step)
    assert vector.calls == [("reset", [0, 1]), "step"]
