"""The ring: what it keeps, what it draws, what it remembers across a restart, what it refuses."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from rl_training.data import (
    FrameReplayBuffer,
    HindsightReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    replay_buffer,
    replay_memory_bytes,
    storage,
)
from rl_training.registry import buffers
from rl_training.system import memory_limits
from rl_training.types import CheckpointError, ConfigError


def add_counts(buffer: ReplayBuffer, start: int, stop: int) -> None:
    for t in range(start, stop):
        buffer.add(np.full(3, t), t, float(t), np.full(3, t + 1), t % 5 == 4, truncated=t % 7 == 6)


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(replay_buffer).failed == 0


def test_the_ring_keeps_the_newest() -> None:
    buffer = ReplayBuffer(10, (3,), ())
    add_counts(buffer, 0, 4)
    assert len(buffer) == 4
    add_counts(buffer, 4, 23)
    assert len(buffer) == 10
    assert sorted(buffer.actions) == list(range(13, 23))
    batch = buffer.sample(1000)
    count = batch["actions"]
    np.testing.assert_array_equal(batch["obs"], np.repeat(count[:, None], 3, axis=1))
    np.testing.assert_array_equal(batch["next_obs"], batch["obs"] + 1)  # also where the next row was overwritten
    np.testing.assert_array_equal(batch["rewards"], count)
    np.testing.assert_array_equal(batch["terminated"], count % 5 == 4)
    np.testing.assert_array_equal(batch["truncated"], count % 7 == 6)
    assert set(batch) == {"obs", "actions", "rewards", "next_obs", "terminated", "truncated"}


@pytest.mark.parametrize("count", [1, 3, 4, 7, 10])
def test_rows_together_equal_rows_one_by_one(count: int) -> None:
    single, together = ReplayBuffer(10, (2,), (1,)), ReplayBuffer(10, (2,), (1,))
    rng = np.random.default_rng(0)
    for _ in range(8):
        obs, after, action = rng.normal(size=(count, 2)), rng.normal(size=(count, 2)), rng.normal(size=(count, 1))
        reward, flags = rng.normal(size=count), rng.random((2, count)) < 0.5
        together.add(obs, action, reward, after, flags[0], truncated=flags[1])
        for i in range(count):
            single.add(obs[i], action[i], reward[i], after[i], flags[0, i], truncated=flags[1, i])
        assert len(single) == len(together)
    for name in ("obs", "actions", "rewards", "next_obs", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(single, name), getattr(together, name))


def test_lists_and_default_flags() -> None:
    buffer = ReplayBuffer(8, (2,), (), action_dtype=np.int64)
    buffer.add([1, 2], 3, 0.5, [3, 4], True)
    buffer.add(np.ones((3, 2)), [1, 2, 3], [0.1, 0.2, 0.3], np.ones((3, 2)), False)
    np.testing.assert_array_equal(buffer.terminated[:4], [True, False, False, False])
    assert not buffer.truncated.any()
    assert buffer.sample(2)["actions"].dtype == np.int64


def test_stored_and_sampled_rows_are_copies() -> None:
    buffer = ReplayBuffer(4, (1,), ())
    shared = np.zeros(1, np.float32)
    for t in range(4):
        shared[:] = t
        buffer.add(shared, 0, 0.0, shared, False)
    assert buffer.obs[:, 0].tolist() == [0, 1, 2, 3]
    buffer.sample(4)["obs"][:] = 99
    assert buffer.obs.max() == 3


def test_sampling_is_uniform_over_what_is_stored() -> None:
    buffer = ReplayBuffer(64, (), (), rng=np.random.default_rng(0))
    for t in range(50):
        buffer.add(float(t), 0, 0.0, 0.0, False)
    counts = np.bincount(buffer.sample(100_000)["obs"].astype(int), minlength=64)
    assert counts[50:].sum() == 0
    chi_square = ((counts[:50] - 2000.0) ** 2 / 2000.0).sum()
    assert 23.0 < chi_square < 85.4  # the middle 99.8% with 49 degrees of freedom


def test_batches_may_be_larger_than_the_buffer() -> None:
    buffer = ReplayBuffer(4, (), ())
    buffer.add(1.0, 0, 0.0, 1.0, False)
    assert buffer.sample(32)["obs"].tolist() == [1.0] * 32


def test_dict_observations() -> None:
    buffer = ReplayBuffer(
        6, {"image": (2, 2), "goal": ()}, (), obs_dtype={"image": np.uint8, "goal": np.float32}, num_envs=4
    )
    for start in (0, 4):
        image = np.arange(start, start + 4, dtype=np.uint8)[:, None, None] * np.ones((2, 2), np.uint8)
        obs, after = {"image": image, "goal": np.ones(4)}, {"image": image + 1, "goal": np.zeros(4)}
        buffer.add(obs, np.arange(start, start + 4), np.zeros(4), after, np.zeros(4))
    batch = buffer.sample(50)
    assert batch["obs"]["image"].dtype == np.uint8
    np.testing.assert_array_equal(batch["obs"]["image"][:, 0, 0], batch["actions"])
    np.testing.assert_array_equal(batch["next_obs"]["image"][:, 1, 1], batch["actions"] + 1)
    assert set(batch["actions"]) == {2, 3, 4, 5, 6, 7}


def test_torch_samples_only_where_a_device_is_given() -> None:
    buffer = ReplayBuffer(4, (3,), (), "cpu")
    add_counts(buffer, 0, 4)
    batch = buffer.sample(5)
    assert all(isinstance(value, torch.Tensor) for value in batch.values())
    assert batch["obs"].shape == (5, 3)
    assert isinstance(buffer.obs, np.ndarray)


def test_numpy_buffers_do_not_import_torch() -> None:
    code = (
        "import sys; from rl_training.data import ReplayBuffer; b = ReplayBuffer(4, (1,), ()); "
        "b.add([1.], 0, 0., [1.], False); b.sample(2); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filled", [0, 6, 10, 17])
def test_a_resumed_buffer_goes_on_bit_for_bit(filled: int) -> None:
    straight = ReplayBuffer(10, (3,), (), rng=np.random.default_rng(3))
    add_counts(straight, 0, filled)
    if filled:
        straight.sample(7)
    state = {
        key: value.copy() if isinstance(value, np.ndarray) else value for key, value in straight.state_dict().items()
    }
    resumed = ReplayBuffer(10, (3,), (), rng=np.random.default_rng(99))
    resumed.load_state_dict(state)
    for buffer in (straight, resumed):
        add_counts(buffer, filled, filled + 5)
    for _ in range(3):
        one, other = straight.sample(16), resumed.sample(16)
        for name in one:
            assert one[name].tobytes() == other[name].tobytes()
    assert len(straight) == len(resumed)


def test_states_that_do_not_fit_are_refused_and_change_nothing() -> None:
    buffer = ReplayBuffer(10, (3,), ())
    add_counts(buffer, 0, 4)
    before = buffer.obs.copy()
    with pytest.raises(CheckpointError, match=r"buffer\.size"):
        buffer.load_state_dict(ReplayBuffer(9, (3,), ()).state_dict())
    other = ReplayBuffer(10, (1,), ())
    other.add([1.0], 0, 0.0, [1.0], False)
    with pytest.raises(CheckpointError, match="'obs'"):
        buffer.load_state_dict(other.state_dict())
    with pytest.raises(CheckpointError, match="'obs'"):
        buffer.load_state_dict(ReplayBuffer(10, {"a": (3,)}, ()).state_dict())
    np.testing.assert_array_equal(buffer.obs, before)


# -- refusals and memory ----------------------------------------------------------------------------------------------


def test_misuse_is_refused() -> None:
    buffer = ReplayBuffer(4, (3,), ())
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    with pytest.raises(ValueError, match=r"\(2,\)"):
        buffer.add(np.zeros(2), 0, 0.0, np.zeros(2), False)
    with pytest.raises(ValueError, match="5 transitions"):
        buffer.add(np.zeros((5, 3)), np.zeros(5), np.zeros(5), np.zeros((5, 3)), np.zeros(5))
    assert len(buffer) == 0
    with pytest.raises(ConfigError, match="8 environments"):
        ReplayBuffer(4, (3,), (), num_envs=8)
    with pytest.raises(ConfigError, match="at least 1"):
        ReplayBuffer(0, (3,), ())


def test_memory_is_estimated_exactly_and_refused_before_it_is_taken() -> None:
    assert replay_memory_bytes(1, (17,), (6,)) == 167
    buffer = ReplayBuffer(1000, {"a": (2, 3), "b": ()}, (2,), obs_dtype={"a": np.uint8, "b": np.float64})
    arrays = [*buffer.obs.values(), *buffer.next_obs.values(), buffer.actions, buffer.rewards]
    held = sum(array.nbytes for array in [*arrays, buffer.terminated, buffer.truncated, buffer.skipped])
    assert buffer.memory_bytes == held
    with pytest.raises(ConfigError, match=r"needs 167000\.00 GB.*on_memory"):
        ReplayBuffer(10**12, (17,), (6,))


GOALS = {"observation": (3,), "achieved_goal": (2,), "desired_goal": (2,)}
KINDS: dict[str, Callable[..., ReplayBuffer]] = {
    "replay": lambda capacity, **keywords: ReplayBuffer(capacity, (17,), (6,), **keywords),
    "prioritized": lambda capacity, **keywords: PrioritizedReplayBuffer(capacity, (17,), (6,), **keywords),
    "frames": lambda capacity, **keywords: FrameReplayBuffer(capacity, (4, 8, 8), (), **keywords),
    "her": lambda capacity, **keywords: HindsightReplayBuffer(
        capacity, GOALS, (1,), compute_reward=lambda achieved, desired, info: np.zeros(len(achieved)), **keywords
    ),
}


def leave(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """From now on this many bytes are available."""
    monkeypatch.setattr(memory_limits, "room", lambda: memory_limits.Room(size, "a test"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_refused_or_made_to_fit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert buffers.get(kind) is type(KINDS[kind](10))
    row = KINDS[kind](10_000).memory_bytes / 10_000
    leave(monkeypatch, int(row * 1000 / storage.MEMORY_SHARE))
    with pytest.raises(ConfigError, match="buffer of 2,000 transitions"):
        KINDS[kind](2000)
    with pytest.warns(UserWarning, match="instead of 2,000: .* available \\(a test\\)"):
        buffer = KINDS[kind](2000, on_memory="shrink")
    assert 950 <= buffer.capacity <= 1010
    assert buffer.memory_bytes <= row * 1050


@pytest.mark.filterwarnings("ignore:the buffer holds")
def test_a_buffer_that_shrank_takes_the_size_it_was_saved_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is free at a resume is not what was free at the start."""
    leave(monkeypatch, 10_000)
    buffer = ReplayBuffer(10**6, (3,), (), on_memory="shrink")
    add_counts(buffer, 0, 300)
    leave(monkeypatch, 20_000)
    resumed = ReplayBuffer(10**6, (3,), (), on_memory="shrink")
    assert resumed.capacity > buffer.capacity
    resumed.load_state_dict(buffer.state_dict())
    assert (resumed.capacity, len(resumed)) == (buffer.capacity, len(buffer))
    assert resumed.sample(50)["obs"].tobytes() == buffer.sample(50)["obs"].tobytes()
    leave(monkeypatch, 5000)
    with pytest.raises(ConfigError, match=f"buffer of {buffer.capacity} transitions"):
        ReplayBuffer(10**6, (3,), (), on_memory="shrink").load_state_dict(buffer.state_dict())


def test_an_empty_buffer_takes_no_memory_and_a_full_one_its_own_size() -> None:
    code = """
import numpy as np, psutil
from rl_training.data import ReplayBuffer
resident = lambda: psutil.Process().memory_info().rss
rng = np.random.default_rng(0)
ReplayBuffer(10, (4,), (), rng=rng).memory_bytes
before = resident()
buffer = ReplayBuffer(500_000, (4,), (), rng=rng)
empty = resident() - before
rows = np.ones((1000, 4), np.float32)
for _ in range(500):
    buffer.add(rows, np.ones(1000), np.ones(1000), rows, np.ones(1000))
full = resident() - before
assert empty < 0.02 * buffer.memory_bytes, empty
assert full < 1.05 * buffer.memory_bytes, (full, buffer.memory_bytes)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
