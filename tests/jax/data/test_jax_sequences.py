"""Sequences of rows in JAX: arrivals equal those of the host, and the ring gives consecutive steps only."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from rl_training.data import sequence
from rl_training.hparams.off_policy import SequenceOptions
from rl_training.jax.data.replay_buffer import empty_ring, store
from rl_training.jax.data.sequences import arrivals, sample_sequences, sequence_columns

LENGTH = 12


def rows(first: Any, valid: Any, seed: int) -> dict[str, Any]:
    """Row j of sequence b has the observation 100 b + 10 j, the next observation one more, and the action j."""
    rng = np.random.default_rng(seed)
    numbers = np.broadcast_to(np.arange(first.shape[1]), first.shape)
    obs = (100 * np.arange(len(first))[:, None] + 10 * numbers)[..., None].astype(np.float32)
    ends = np.roll(first | ~valid, -1, axis=1) & valid
    terminated = ends & (rng.random(first.shape) < 0.5)
    return {
        "obs": {"a": obs, "b": numbers.copy()},
        "next_obs": {"a": obs + 1.0, "b": numbers + 1},
        "actions": numbers.copy(),
        "rewards": (numbers + 0.5).astype(np.float32),
        "terminated": terminated,
        "truncated": ends & ~terminated,
        "is_first": first & valid,
        "valid": valid,
    }


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, tree in expected.items():
        pairs = zip(jax.tree.leaves(found[name]), jax.tree.leaves(tree), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_array_equal(np.asarray(ours), theirs, err_msg=name)


def test_arrivals_are_those_of_the_host() -> None:
    """Rows that start an episode, go on, or hold no transition, in every order that a buffer can give."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, (400, LENGTH))
    valid = kinds > 0
    first = kinds == 1
    first[:, 1:] |= valid[:, 1:] & ~valid[:, :-1]
    batch = rows(first & valid, valid, seed=1)
    batch["truncated"] &= rng.random(first.shape) < 0.5  # the others are cut off without an end
    assert_same(jax.jit(arrivals)(batch), sequence.arrivals(batch))


@pytest.mark.parametrize(
    ("first", "row", "reset"),
    [
        ((0, 0, 1, 0), (0, 1, 2, 2), (0, 0, 1, 0)),
        ((1, 0, 0, 0), (0, 0, 1, 2), (1, 0, 0, 0)),
        ((0, 0, 0, 0), (0, 1, 2, 3), (0, 0, 0, 0)),
    ],
)
def test_the_slots_of_known_windows(first: Any, row: Any, reset: Any) -> None:
    starts = np.array([first], bool)
    result = arrivals(rows(starts, np.ones_like(starts), seed=0))
    assert result["actions"][0].tolist() == list(row)
    assert result["is_first"][0].tolist() == list(map(bool, reset))
    assert result["valid"].all()


def step(t: int, num_envs: int) -> dict[str, Any]:
    """Step t: every number says which step and environment it belongs to; episodes of five steps."""
    where = (10 * t + np.arange(num_envs)).astype(np.float32)
    first, ends = np.full(num_envs, t % 5 == 0), np.full(num_envs, t % 5 == 4)
    never = np.zeros(num_envs, bool)
    return {
        "obs": where[:, None],
        "actions": where,
        "rewards": where,
        "next_obs": where[:, None] + 0.5,
        "terminated": ends,
        "truncated": never,
        "is_first": first,
        "carry/h": np.stack([where, where], 1),
        "not stored": where,
    }


@pytest.mark.parametrize("written", [4, 7, 12, 25, 36])
def test_sequences_are_consecutive_steps_of_one_environment(written: int) -> None:
    """Before, at and after the ring of 12 steps is full, and when its counter was folded."""
    num_envs, capacity, length = 3, 12, 4
    options = SequenceOptions(length, {"h": ((2,), np.float32)})
    ring = empty_ring(step(0, num_envs), capacity * num_envs, sequence_columns(options))
    assert "not stored" not in ring.rows
    for t in range(written):
        ring = store(ring, step(t, num_envs))
    batch = sample_sequences(ring, jax.random.key(0), 500, length, num_envs=num_envs)
    numbers = np.asarray(batch["actions"])
    times, envs = np.floor_divide(numbers, 10), numbers % 10
    oldest = max(written - capacity, 0)
    assert (np.diff(times, axis=1) == 1).all()
    assert (envs == envs[:, :1]).all()
    expected = set(range(oldest, written - length + 1))
    assert set(times[:, 0].astype(int).tolist()) == expected, "every window that is there, and no other"
    assert set(envs[:, 0].astype(int).tolist()) == {0, 1, 2}
    np.testing.assert_array_equal(batch["is_first"], times % 5 == 0)
    np.testing.assert_array_equal(batch["carry"]["h"], np.stack([numbers[:, 0]] * 2, 1))
    np.testing.assert_array_equal(batch["obs"][..., 0], numbers)
    assert batch["valid"].all()
