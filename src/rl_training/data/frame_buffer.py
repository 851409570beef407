"""Replay of stacked frames that stores every frame once: about an eighth of the memory with stacks of four.

A transition stores the numbers of the frames in its two stacks; the frames themselves lie in a ring of their own.
Repetition is detected by comparing bits, not assumed: an observation that continues the previous one adds one frame,
the first of an episode adds its distinct frames, and anything else is stored whole. So samples equal those of a plain
`ReplayBuffer` bit for bit, at episode ends and at the write position too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rl_training.checkpointing.row_log import LogIdentity, RowLog
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.storage import DType, Shapes, Tree, row_bytes
from rl_training.types import Array, ConfigError, Obs, StateDict

SPARE = 16
"""The ring of frames is larger than the ring of transitions by capacity / 16: every episode needs at least one more."""


class FrameReplayBuffer(ReplayBuffer):
    """A `ReplayBuffer` for observations (stack, *frame) that slide by one frame per step, as frame stacking gives them.

    It takes all keywords of a `ReplayBuffer`, priorities and n-step included. With very short episodes (fewer than 16
    steps on average) the spare frames run out, and the oldest transitions are dropped before `capacity` is reached.
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: Shapes,
        action_shape: Shapes,
        device: Any = None,
        *,
        obs_dtype: DType = np.uint8,
        **keywords: Any,
    ) -> None:
        if not isinstance(obs_shape, tuple) or len(obs_shape) < 2:
            raise ConfigError(
                f"a buffer of frames needs stacked observations (stack, *frame), not {obs_shape}: set env.frame_stack, "
                "or buffer.type to 'replay'"
            )
        self.stack, *frame = obs_shape
        self.frame_shape = tuple(frame)
        self.frame_dtype = np.dtype(obs_dtype)
        super().__init__(capacity, self.stack, action_shape, device, obs_dtype=np.int64, **keywords)

    def _row_bytes(self) -> int:
        frame = row_bytes(self.frame_shape, self.frame_dtype)
        return super()._row_bytes() + math.ceil(frame * (1 + 1 / SPARE))

    def _allocate(self, capacity: int) -> None:
        super()._allocate(capacity)
        room = capacity + capacity // SPARE + 2 * self.stack * self.num_envs
        self.frames: Array = np.zeros((room, *self.frame_shape), self.frame_dtype)
        self._num_frames = 0
        self._open: Array = np.full((self.num_envs, self.stack), -1, np.int64)
        """Frame numbers of each environment's latest next observation; -1 before the first."""
        self._frame_identity = LogIdentity()
        self.memory_bytes = self.capacity * super()._row_bytes() + self.frames.nbytes

    # -- filling ------------------------------------------------------------------------------------------------------

    def add(self, obs: Obs, action: Any, reward: Any, next_obs: Obs, done: Any, truncated: Any = False) -> None:
        """As `ReplayBuffer.add`, but only whole steps of all environments: each is compared with the step before."""
        obs = np.asarray(obs)
        stacks, next_stacks = self._stacks(obs), self._stacks(next_obs)
        count = len(stacks)
        if count % self.num_envs or count > self.capacity:
            raise ValueError(f"a buffer of frames takes whole steps of {self.num_envs} environments, not {count} rows")
        numbers, next_numbers = np.empty((2, count, self.stack), np.int64)
        for first in range(0, count, self.num_envs):
            step = slice(first, first + self.num_envs)
            numbers[step], next_numbers[step] = self._numbers_of(stacks[step], next_stacks[step])
        if obs.ndim == len(self.frame_shape) + 1:
            numbers, next_numbers = numbers[0], next_numbers[0]
        super().add(numbers, action, reward, next_numbers, done, truncated)
        if self._num_frames > len(self.frames):
            self._drop_incomplete()

    def _stacks(self, obs: Obs) -> Array:
        """Observations as (N, stack, *frame)."""
        array = np.asarray(obs).astype(self.frame_dtype, copy=False)
        shape = (self.stack, *self.frame_shape)
        if array.shape == shape:
            return array[None]
        if array.shape[1:] != shape:
            raise ValueError(f"an observation has shape {array.shape}; this buffer takes {shape} or (N, *shape)")
        return array

    def _numbers_of(self, stacks: Array, next_stacks: Array) -> tuple[Array, Array]:
        """Frame numbers of one step's two stacks, (N, stack) each; new frames are stored."""
        held = self.frames.take(self._open % len(self.frames), axis=0)
        continues = (_words(held) == _words(stacks)).all(axis=(1, 2)) & (self._open[:, 0] >= 0)
        numbers = self._open.copy()
        for env in np.flatnonzero(~continues):
            numbers[env] = self._store(stacks[env])
        slides = (_words(stacks)[:, 1:] == _words(next_stacks)[:, :-1]).all(axis=(1, 2))
        self._open[:, :-1] = numbers[:, 1:]
        self._open[slides, -1] = self._store_frames(next_stacks[slides, -1])
        for env in np.flatnonzero(~slides):
            self._open[env] = self._store(next_stacks[env])
        return numbers, self._open

    def _store(self, stack: Array) -> Array:
        """Store a whole stack, repeated frames once; returns the number of each of its frames."""
        words = _words(stack[None])[0]
        new = np.append(True, (words[1:] != words[:-1]).any(axis=1))
        numbers: Array = self._store_frames(stack[new])[np.cumsum(new) - 1]
        return numbers

    def _store_frames(self, frames: Array) -> Array:
        """Store frames; returns their numbers, counted from the first frame ever stored."""
        numbers = np.arange(self._num_frames, self._num_frames + len(frames))
        self.frames[numbers % len(self.frames)] = frames
        self._num_frames += len(frames)
        return numbers

    def _drop_incomplete(self) -> None:
        """Drop transitions whose frames were overwritten. Frame numbers only grow, so these are the oldest."""
        oldest_frame = self._num_frames - len(self.frames)
        while self._size:
            first = self._written - self._size
            rows = np.arange(first, first + self.num_envs) % self.capacity
            if self.obs[rows, 0].min() >= oldest_frame:
                break
            if self._num_skipped:
                self._forget_skipped(rows)
            self._size -= self.num_envs

    # -- sampling and state -------------------------------------------------------------------------------------------

    def _read(self, name: str, index: Array) -> Tree:
        rows = super()._read(name, index)
        return self.frames.take(rows % len(self.frames), axis=0) if name in ("obs", "next_obs") else rows

    def state_dict(self) -> StateDict:
        oldest = max(0, self._num_frames - len(self.frames))
        frames = RowLog({"frames": self.frames}, oldest, self._num_frames, self._frame_identity)
        return {**super().state_dict(), "frames": frames, "open": self._open.copy()}

    def load_state_dict(self, state: StateDict, /) -> None:
        super().load_state_dict(state)
        self._frame_identity = state["frames"].copy_into({"frames": self.frames})
        self._num_frames = int(state["frames"].stop)
        self._open = np.array(state["open"])

    def _row_format(self) -> dict[str, str]:
        return {**super()._row_format(), "frames": f"{self.frame_dtype}{list(self.frame_shape)}"}


def _words(stacks: Array) -> Array:
    """The bits of stacks as words (N, stack, words): fast to compare, and -0.0 differs from 0.0."""
    octets = np.ascontiguousarray(stacks).reshape(*stacks.shape[:2], -1).view(np.uint8)
    return octets.view(np.uint64) if octets.shape[2] % 8 == 0 else octets
