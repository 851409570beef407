"""Frames kept once: the same samples as a plain buffer, bit for bit, in an eighth of its memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay_cases import Episodes

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.data import FrameReplayBuffer, Priorities, ReplayBuffer
from rl_training.types import CheckpointError, ConfigError, VectorStep

STACK, FRAME = 3, (4, 5)
FIELDS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")


class Images:
    """Turns counted observations into stacks of random images, the way frame stacking does it."""

    def __init__(self, episodes: Episodes, padding: str = "reset") -> None:
        self.episodes = episodes
        self.padding = padding
        self.frames: dict[int, np.ndarray] = {}
        self.stacks: dict[int, np.ndarray] = {}
        for i in range(episodes.num_envs):
            self._start(int(episodes.obs[i]))

    def _frame(self, number: int) -> np.ndarray:
        return self.frames.setdefault(number, np.random.default_rng(number).integers(0, 255, FRAME, np.uint8))

    def _start(self, number: int) -> None:
        first = self._frame(number)
        pad = first if self.padding == "reset" else np.zeros_like(first)
        self.stacks[number] = np.stack([pad] * (STACK - 1) + [first])

    def steps(self, count: int) -> Iterator[VectorStep]:
        for _ in range(count):
            before = self.episodes.obs.copy()
            step = self.episodes.step()
            numbers = step.next_obs[:, 0].astype(int)
            for i, number in enumerate(numbers):
                if step.valid[i]:
                    self.stacks[number] = np.append(self.stacks[int(before[i])][1:], self._frame(number)[None], axis=0)
                else:
                    self._start(int(number))  # the step only resets: what it shows starts an episode
            for number in self.episodes.obs:
                if int(number) not in self.stacks:
                    self._start(int(number))
            obs = np.stack([self.stacks[int(number)] for number in before])
            next_obs = np.stack([self.stacks[int(number)] for number in numbers])
            yield VectorStep(
                obs, step.actions, step.rewards, step.terminated, step.truncated, step.is_first, step.valid, next_obs
            )


def build(capacity: int, **keywords: Any) -> FrameReplayBuffer:
    return FrameReplayBuffer(capacity, (STACK, *FRAME), (), rng=np.random.default_rng(5), **keywords)


def plain(capacity: int, **keywords: Any) -> ReplayBuffer:
    return ReplayBuffer(capacity, (STACK, *FRAME), (), obs_dtype=np.uint8, rng=np.random.default_rng(5), **keywords)


@pytest.mark.parametrize("padding", ["reset", "zero"])
@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("keywords", [{}, {"n_step": 3, "gamma": 0.9}], ids=["1-step", "3-step"])
def test_every_sample_equals_a_plain_buffers(padding: str, next_step: bool, keywords: dict[str, Any]) -> None:
    """Through three rounds of the ring; episodes are long enough for the spare frames."""
    episodes = Episodes(2, seed=1, next_step=next_step, ends=0.02)
    frames, rows = build(61, num_envs=2, **keywords), plain(61, num_envs=2, **keywords)
    for number, step in enumerate(Images(episodes, padding).steps(100)):
        frames.store(step)
        rows.store(step)
        assert len(frames) == len(rows)
        if len(rows):
            one, other = frames.sample(16), rows.sample(16)
            assert list(one) == list(other)
            for name in one:
                assert one[name].dtype == other[name].dtype
                assert one[name].tobytes() == other[name].tobytes(), (number, name)
        if number > 10:
            one, other = frames.sample_sequences(8, 5), rows.sample_sequences(8, 5)
            for name in one:
                assert one[name].tobytes() == other[name].tobytes(), (number, name)
    assert frames._laps >= 3


@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("prioritized", [False, True])
def test_short_episodes_cost_old_transitions_never_wrong_ones(next_step: bool, prioritized: bool) -> None:
    """About four steps an episode: the spare frames run out, and what remains is still what was seen."""
    episodes = Episodes(3, seed=2, next_step=next_step, lost=0.03)
    images = Images(episodes)
    buffer = build(200, num_envs=3, priorities=Priorities() if prioritized else None)
    seen: dict[int, tuple[VectorStep, int]] = {}
    sizes = []
    for step in images.steps(250):
        buffer.store(step)
        seen.update({int(step.actions[i]): (step, int(i)) for i in np.flatnonzero(step.valid)})
        sizes.append(len(buffer))
        if not sizes[-1]:
            continue
        batch = buffer.sample(32)
        for row, number in enumerate(batch["actions"].astype(int)):
            source, i = seen[number]
            for name in FIELDS:
                assert batch[name][row].tobytes() == getattr(source, name)[i].astype(batch[name].dtype).tobytes()
        first = buffer._written - buffer._size
        if first > max(0, buffer._written - 200):  # given up early, but not before its frames were gone
            before = np.arange(first - 3, first) % 200
            assert buffer.obs[before, 0].min() < buffer._num_frames - len(buffer.frames)
    assert 100 < min(sizes[80:]) < max(sizes[80:]) < 200
    drawn = {int(number) for _ in range(200) for number in buffer.sample(128)["actions"]}
    assert len(drawn) == len(buffer)


def test_a_frame_is_stored_once() -> None:
    images = Images(Episodes(1, seed=0, ends=0.0))
    buffer = build(100)
    for step in images.steps(50):
        buffer.store(step)
    assert buffer._num_frames == 51  # the first observation repeats one frame, every step adds one


def test_a_million_atari_transitions_fit_into_eight_gigabytes() -> None:
    buffer = FrameReplayBuffer(100_000, (4, 84, 84), (), action_dtype=np.int64, num_envs=8)
    held = sum(array.nbytes for array in buffer._columns().values()) + buffer.frames.nbytes
    assert buffer.memory_bytes == held
    assert 10 * buffer.memory_bytes < 8e9
    with pytest.raises(ConfigError, match=r"set buffer\.size to at most"):
        FrameReplayBuffer(10**9, (4, 84, 84), ())


def test_one_row_at_a_time_and_lists_of_rows() -> None:
    rng = np.random.default_rng(0)
    obs, after = rng.integers(0, 255, (2, 6, STACK, *FRAME), np.uint8)
    single, together = build(10), build(10)
    together.add(obs, np.arange(6), np.zeros(6), after, np.zeros(6))
    for i in range(6):
        single.add(obs[i], i, 0.0, after[i], False)
    for one, other in zip(single.sample(20).values(), together.sample(20).values(), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_resumed_buffer_goes_on_bit_for_bit(on_disk: bool, tmp_path: Path) -> None:
    images = Images(Episodes(2, seed=4, ends=0.05))
    straight, resumed = build(40, num_envs=2), build(40, num_envs=2)
    manager = CheckpointManager(tmp_path, keep_last=2)
    for number, step in enumerate(images.steps(90)):
        straight.store(step)
        resumed.store(step)
        if number % 15 == 14:
            state = resumed.state_dict()
            if on_disk:
                manager.save({"buffer": state}, step=number)
                manager = CheckpointManager(tmp_path, keep_last=2)
                state = manager.load_latest().parts["buffer"]
            resumed = build(40, num_envs=2)
            resumed.load_state_dict(state)
        one, other = straight.sample(8), resumed.sample(8)
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)
    assert straight._num_frames == resumed._num_frames > 2 * len(straight.frames)


def test_what_does_not_fit_is_refused() -> None:
    for shape in ((84,), 4, {"image": (4, 84, 84)}):
        with pytest.raises(ConfigError, match="needs stacked observations"):
            FrameReplayBuffer(10, shape, ())  # type: ignore[arg-type]
    buffer = build(10, num_envs=2)
    with pytest.raises(ValueError, match="whole steps of 2 environments, not 1 rows"):
        buffer.add(np.zeros((STACK, *FRAME)), 0, 0.0, np.zeros((STACK, *FRAME)), False)
    with pytest.raises(ValueError, match="this buffer takes"):
        buffer.add(np.zeros((2, STACK, 9)), 0, 0.0, np.zeros((2, STACK, 9)), False)
    with pytest.raises(CheckpointError, match="'frames'"):
        buffer.load_state_dict(FrameReplayBuffer(10, (STACK, 4, 4), (), num_envs=2).state_dict())
