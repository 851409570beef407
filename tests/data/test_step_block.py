"""Steps that wait to be stored, and rollouts that wait to be learnt from, come back from their state as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.step_block import StepBlock
from rl_training.types import VectorStep

ENVS = 3


def step(t: int, named: bool) -> VectorStep:
    rng = np.random.default_rng(t)
    obs, after = (rng.normal(size=(ENVS, 2)).astype(np.float32) for _ in range(2))
    ended = np.arange(ENVS) == t % 4
    return VectorStep(
        {"a/b": obs, "mask": ended} if named else obs,
        rng.integers(4, size=ENVS),
        rng.normal(size=ENVS),
        ended & (t % 2 == 0),
        ended & (t % 2 == 1),
        np.roll(ended, 1),
        ~np.roll(ended, 1),
        {"a/b": after, "mask": ended} if named else after,
        {"carry/h": rng.normal(size=(ENVS, 2)).astype(np.float32)},
    )


def assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    else:
        assert np.asarray(left).dtype == np.asarray(right).dtype
        assert np.array_equal(left, right)


@pytest.mark.parametrize("named", [False, True])
def test_a_block_comes_back_from_a_checkpoint(tmp_path: Any, named: bool) -> None:
    block, loaded = StepBlock(), StepBlock()
    for t in range(5):
        given = step(t, named)
        block.store(given)
        block.count(ENVS - t % 2, t % 3)
        given.rewards[:] = 99.0  # an environment may reuse its arrays
    manager = CheckpointManager(tmp_path)
    manager.save({"ahead": block.state_dict()}, step=0)
    loaded.load_state_dict(manager.load_latest().parts["ahead"])
    assert loaded.counts == block.counts == [(3, 0), (2, 1), (3, 2), (2, 0), (3, 1)]
    for left, right in zip(loaded.steps, block.steps, strict=True):
        for name in VectorStep.__slots__:
            assert_same(getattr(left, name), getattr(right, name))
    assert block.steps[0].rewards.tolist() == step(0, named).rewards.tolist()
    block.clear()
    assert (block.steps, block.counts) == ([], [])


@pytest.mark.parametrize("length", [4, 6])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_rollout_comes_back_from_a_checkpoint(tmp_path: Any, length: int, named: bool, device: Any) -> None:
    """Also a shorter one than the buffer holds, and where tensors are stored."""
    shapes: Any = {"a/b": (2,), "mask": ()} if named else (2,)
    dtypes: Any = {"a/b": np.float32, "mask": np.bool_} if named else np.float32
    first, second = (
        RolloutBuffer(6, ENVS, shapes, (), obs_dtype=dtypes, action_dtype=np.int64, device=device) for _ in range(2)
    )
    for buffer, start in ((second, 7), (first, 0)):
        buffer.begin({}, {"h": np.full((ENVS, 2), start, np.float32)})
        for t in range(length if start == 0 else 6):
            buffer.store(step(start + t, named))
    manager = CheckpointManager(tmp_path)
    manager.save({"ahead": first.state_dict()}, step=0)
    second.load_state_dict(manager.load_latest().parts["ahead"])
    assert_same(second.as_batch(), first.as_batch())
    second.begin({}, {})
    second.store(step(3, named))  # and it can be filled again
    assert len(second.as_batch()["rewards"]) == 1
