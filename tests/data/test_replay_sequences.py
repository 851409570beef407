"""Replay buffers that give sequences: which ones, with what the policy remembered, by priority, and after a resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.data.frame_buffer import FrameReplayBuffer
from rl_training.data.priorities import Priorities
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.types import ConfigError, VectorStep

ENVS, LENGTH = 2, 4


def filled(steps: int, capacity: int = 40, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, 1, (), num_envs=ENVS, sequence_length=LENGTH, **options)
    fill(buffer, 0, steps)
    return buffer


def fill(buffer: ReplayBuffer, start: int, stop: int) -> None:
    """Row t of environment e holds 10 t + e; every episode has 5 steps, of which the last is followed by a reset."""
    for t in range(start, stop):
        obs = np.float32([[10 * t], [10 * t + 1]])
        ends, resets = np.full(ENVS, t % 6 == 4), np.full(ENVS, t % 6 == 5)
        carry = {f"carry/{name}": np.full((ENVS, 3), t, np.float32) for name in buffer.carry}
        none = np.zeros(ENVS, bool)
        buffer.store(
            VectorStep(obs, np.zeros(ENVS), np.full(ENVS, t, np.float32), ends, none, none, ~resets, obs + 10, carry)
        )


@pytest.mark.parametrize("steps", [4, 9, 20, 33])
@pytest.mark.parametrize("prioritized", [False, True])
def test_sequences_are_complete_and_consecutive(steps: int, prioritized: bool) -> None:
    buffer = filled(steps, priorities=Priorities() if prioritized else None)
    held = min(steps, 20)
    assert len(buffer) == ENVS * (held - LENGTH + 1 - (steps > 20))
    batch = buffer.sample(500)
    times = (batch["obs"][..., 0] // 10).astype(int)
    assert (np.diff(times) == 1).all()
    assert times.min() == (steps - 20 + 1 if steps > 20 else 0)
    newest = steps - LENGTH
    assert times[:, 0].max() == newest - (prioritized and newest % 6 == 5), "no priority where no transition is"
    assert np.array_equal(batch["valid"], times % 6 != 5)
    assert np.array_equal(batch["is_first"], times % 6 == 0)


def test_without_a_complete_sequence_there_is_nothing_to_sample() -> None:
    buffer = filled(3)
    assert len(buffer) == 0
    with pytest.raises(ValueError, match="holds no sequence of 4 steps yet"):
        buffer.sample(1)
    with pytest.raises(ConfigError, match="holds no sequence of 4 steps of 2 environments"):
        ReplayBuffer(9, 1, (), num_envs=ENVS, sequence_length=LENGTH)


def test_priorities_are_of_sequences_and_found_by_their_first_row() -> None:
    buffer = filled(20, priorities=Priorities(alpha=1.0))
    batch = buffer.sample(64)
    assert batch["indices"].shape == batch["weights"].shape == (64,)
    assert np.array_equal(batch["indices"] // ENVS, batch["obs"][:, 0, 0] // 10)
    buffer.update_priorities(np.arange(2 * 17), np.zeros(2 * 17))
    buffer.update_priorities([7], [1.0])
    assert (buffer.sample(50)["obs"][:, 0, 0] == 31).all(), "row 7 is step 3 of environment 1"


def test_a_carry_is_stored_with_every_row_counted_and_resumed() -> None:
    carry: Any = {"hidden": (3, np.float32)}
    buffer, plain = filled(33, carry=carry), filled(33)
    assert buffer.memory_bytes - plain.memory_bytes == 40 * 3 * 4
    batch = buffer.sample(100)
    assert np.array_equal(batch["carry"]["hidden"][:, 0], batch["obs"][:, 0, 0] // 10)
    other = filled(0, carry=carry)
    other.load_state_dict(buffer.state_dict())
    for part in (buffer, other):
        fill(part, 33, 36)
    first, second = buffer.sample(50), other.sample(50)
    assert np.array_equal(first["carry"]["hidden"], second["carry"]["hidden"])
    assert np.array_equal(first["obs"], second["obs"])


def test_a_discontinuity_is_not_crossed() -> None:
    buffer = filled(3, carry={"hidden": (3, np.float32)})
    buffer.drop_open_episodes()
    fill(buffer, 6, 10)
    batch = buffer.sample(200)
    times = batch["obs"][..., 0] // 10
    after = times == 6
    assert batch["is_first"][after].all()
    assert not batch["valid"][times == 3].any(), "the row that marks it"


def test_stacked_frames_give_the_same_sequences() -> None:
    plain = ReplayBuffer(40, (2, 3), (), num_envs=ENVS, sequence_length=LENGTH, obs_dtype=np.uint8)
    frames = FrameReplayBuffer(40, (2, 3), (), num_envs=ENVS, sequence_length=LENGTH)
    shown = np.random.default_rng(0).integers(0, 256, (40, ENVS, 3), np.uint8)
    no = np.zeros(ENVS, bool)
    for t in range(1, 30):
        obs, following = np.stack([shown[t - 1], shown[t]], 1), np.stack([shown[t], shown[t + 1]], 1)
        for buffer in (plain, frames):
            buffer.store(VectorStep(obs, np.zeros(ENVS), np.zeros(ENVS), no, no, no, ~no, following))
    one, two = plain.sample(20), frames.sample(20)
    assert one["obs"].shape == (20, LENGTH, 2, 3)
    assert all(np.array_equal(one[name], two[name]) for name in one)
