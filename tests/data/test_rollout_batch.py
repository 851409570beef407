"""Rollouts as a collector stores them, against sequences worked out by hand.

The environment counts 0, 1, 2, 3 and ends at 3; the reward is the new count. Two copies run side by side, the second
one step ahead. SAME_STEP puts the first observation of the next episode into the very next row; NEXT_STEP spends a row
on the reset, which is no transition.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rl_training.data import ReplayBuffer, RolloutBuffer
from rl_training.types import Batch, VectorStep


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


def step(
    obs: list[float], next_obs: list[float], ended: list[int], kind: str, valid: list[int], first: list[int]
) -> VectorStep:
    flags = np.array(ended, np.bool_)
    none = np.zeros_like(flags)
    return VectorStep(
        obs=column(*obs),
        actions=np.array([7, 8]),
        rewards=np.array(next_obs) * np.array(valid),
        terminated=flags if kind == "terminated" else none,
        truncated=flags if kind == "truncated" else none,
        is_first=np.array(first, np.bool_),
        valid=np.array(valid, np.bool_),
        next_obs=column(*next_obs),
    )


def same_step(kind: str) -> Iterator[VectorStep]:
    yield step([0, 1], [1, 2], [0, 0], kind, [1, 1], [1, 0])
    yield step([1, 2], [2, 3], [0, 1], kind, [1, 1], [0, 0])
    yield step([2, 0], [3, 1], [1, 0], kind, [1, 1], [0, 1])
    yield step([0, 1], [1, 2], [0, 0], kind, [1, 1], [1, 0])


def next_step(kind: str) -> Iterator[VectorStep]:
    yield step([0, 1], [1, 2], [0, 0], kind, [1, 1], [1, 0])
    yield step([1, 2], [2, 3], [0, 1], kind, [1, 1], [0, 0])
    yield step([2, 3], [3, 0], [1, 0], kind, [1, 0], [0, 0])
    yield step([3, 0], [0, 1], [0, 0], kind, [0, 1], [0, 1])


def collect(steps: Iterator[VectorStep]) -> Batch:
    buffer = RolloutBuffer(4, 2, (1,), (), action_dtype=np.int64)
    buffer.begin(column(0, 1), {"h": np.array([[1.0], [2.0]])})
    for row in steps:
        buffer.store(row)
    return buffer.as_batch()


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_same_step_rollout(kind: str) -> None:
    batch = collect(same_step(kind))
    ended = [[0, 0], [0, 1], [1, 0], [0, 0]]
    np.testing.assert_array_equal(batch["obs"][..., 0], [[0, 1], [1, 2], [2, 0], [0, 1]])
    np.testing.assert_array_equal(batch["rewards"], [[1, 2], [2, 3], [3, 1], [1, 2]])
    np.testing.assert_array_equal(batch[kind], ended)
    np.testing.assert_array_equal(batch["terminated"] | batch["truncated"], ended)
    np.testing.assert_array_equal(batch["is_first"], [[1, 0], [0, 0], [0, 1], [1, 0]])
    assert batch["valid"].all()
    np.testing.assert_array_equal(batch["final_obs"], [[3], [3]])
    np.testing.assert_array_equal(batch["final_index"], [1 * 2 + 1, 2 * 2 + 0])
    np.testing.assert_array_equal(batch["last_obs"], [[1], [2]])
    np.testing.assert_array_equal(batch["initial_carry"]["h"], [[1.0], [2.0]])
    np.testing.assert_array_equal(batch["actions"], [[7, 8]] * 4)
    assert batch["actions"].dtype == np.int64
    assert batch["final_index"].dtype == np.int64


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_next_step_rollout(kind: str) -> None:
    batch = collect(next_step(kind))
    np.testing.assert_array_equal(batch["obs"][..., 0], [[0, 1], [1, 2], [2, 3], [3, 0]])
    np.testing.assert_array_equal(batch["valid"], [[1, 1], [1, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(batch[kind], [[0, 0], [0, 1], [1, 0], [0, 0]])
    np.testing.assert_array_equal(batch["final_obs"], [[3], [3]])
    np.testing.assert_array_equal(batch["final_index"], [3, 4])
    np.testing.assert_array_equal(batch["last_obs"], [[0], [1]])


def transitions(batch: Batch) -> list[tuple[float, float, float, bool]]:
    """(obs, next_obs, reward, ended) per valid row, the way an algorithm finds its next observations."""
    following = np.concatenate([batch["obs"][1:], batch["last_obs"][None]]).reshape(-1, 1).copy()
    following[batch["final_index"]] = batch["final_obs"]
    ends = (batch["terminated"] | batch["truncated"]).reshape(-1)
    rows = zip(batch["obs"].reshape(-1), following[:, 0], batch["rewards"].reshape(-1), ends, strict=True)
    return [tuple(map(float, row)) for row, ok in zip(rows, batch["valid"].reshape(-1), strict=True) if ok]  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_both_modes_hold_the_same_transitions(kind: str) -> None:
    possible = {(0, 1, 1, 0), (1, 2, 2, 0), (2, 3, 3, 1)}
    same, following = transitions(collect(same_step(kind))), transitions(collect(next_step(kind)))
    assert set(same) == set(following) == possible
    assert len(same) == 8
    assert len(following) == 6


def test_replay_leaves_reset_rows_out() -> None:
    replay = ReplayBuffer(100, (1,), (), num_envs=2)
    for row in next_step("truncated"):
        replay.store(row)
    assert len(replay) == 6
    batch = replay.sample(400)
    columns = (batch["obs"][:, 0], batch["next_obs"][:, 0], batch["rewards"], batch["truncated"])
    assert set(zip(*(column.tolist() for column in columns), strict=True)) == {
        (0, 1, 1, False),
        (1, 2, 2, False),
        (2, 3, 3, True),
    }
    assert not batch["terminated"].any()


def test_an_environment_that_reuses_its_arrays_yields_distinct_observations() -> None:
    buffer = RolloutBuffer(3, 1, (1,), ())
    shared, flags, carry = np.zeros((1, 1), np.float32), np.zeros(1, np.bool_), {"h": np.zeros((1, 1))}
    buffer.begin(shared, carry)
    carry["h"][:] = 9
    for t in range(3):
        shared[:] = t
        ends = np.array([t == 1])
        row = VectorStep(shared, shared[:, 0], shared[:, 0], ends, flags, flags, ~flags, shared, {"logits": shared})
        buffer.store(row)
    shared[:] = 99
    batch = buffer.as_batch()
    for name in ("obs", "actions", "rewards", "logits"):
        np.testing.assert_array_equal(batch[name].reshape(-1), [0, 1, 2])
    np.testing.assert_array_equal(batch["final_obs"], [[1]])
    np.testing.assert_array_equal(batch["last_obs"], [[2]])
    np.testing.assert_array_equal(batch["initial_carry"]["h"], [[0]])


def plain_step(count: int, **extras: np.ndarray) -> VectorStep:
    no = np.zeros(2, np.bool_)
    obs = {"a": np.full((2, 1), count, np.float32), "b": np.full(2, count)}
    after = {"a": obs["a"] + 1, "b": obs["b"] + 1}
    return VectorStep(obs, np.zeros(2), np.zeros(2), np.array([False, True]), no, no, ~no, after, extras)


def dict_buffer(num_steps: int = 3) -> RolloutBuffer:
    return RolloutBuffer(num_steps, 2, {"a": (1,), "b": ()}, (), obs_dtype={"a": np.float32, "b": np.int64})


def test_dict_observations() -> None:
    buffer = dict_buffer()
    for t in range(3):
        buffer.store(plain_step(t))
    batch = buffer.as_batch()
    np.testing.assert_array_equal(batch["obs"]["b"], [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(batch["final_obs"]["a"], [[1], [2], [3]])
    np.testing.assert_array_equal(batch["final_obs"]["b"], [1, 2, 3])
    assert batch["final_obs"]["b"].dtype == np.int64
    np.testing.assert_array_equal(batch["final_index"], [1, 3, 5])
    np.testing.assert_array_equal(batch["last_obs"]["b"], [3, 3])


def test_no_episode_ended() -> None:
    buffer = RolloutBuffer(1, 2, (1,), ())
    buffer.store(next(same_step("terminated")))
    batch = buffer.as_batch()
    assert batch["final_obs"].shape == (0, 1)
    assert batch["final_index"].shape == (0,)


def test_a_rollout_may_stop_early_and_the_next_one_starts_clean() -> None:
    buffer = dict_buffer(num_steps=5)
    buffer.store(plain_step(0))
    buffer.store(plain_step(1))
    assert buffer.as_batch()["rewards"].shape == (2, 2)
    buffer.begin({}, {})
    buffer.store(plain_step(7))
    batch = buffer.as_batch()
    np.testing.assert_array_equal(batch["obs"]["b"], [[7, 7]])
    np.testing.assert_array_equal(batch["final_index"], [1])


def test_extras_are_merged_by_name() -> None:
    buffer = dict_buffer()
    for t in range(3):
        buffer.store(plain_step(t, logits=np.full((2, 3), t, np.float64)))
    batch = buffer.as_batch()
    assert batch["logits"].shape == (3, 2, 3)
    assert batch["logits"].dtype == np.float64
    np.testing.assert_array_equal(batch["logits"][:, 0, 0], [0, 1, 2])
    buffer.begin({}, {})
    buffer.store(plain_step(0))
    assert "logits" not in buffer.as_batch()  # another policy may give others


def test_misuse_is_refused() -> None:
    buffer = dict_buffer(num_steps=1)
    with pytest.raises(ValueError, match="empty"):
        buffer.as_batch()
    with pytest.raises(ValueError, match="'rewards'"):
        buffer.store(plain_step(0, rewards=np.zeros(2)))
    buffer.store(plain_step(0))
    with pytest.raises(ValueError, match=r"begin\(\)"):
        buffer.store(plain_step(1))
    other = dict_buffer()
    other.store(plain_step(0, logits=np.zeros(2)))
    with pytest.raises(ValueError, match="same extras"):
        other.store(plain_step(1))
