"""Memory shared by a vector environment and its workers: observations, rewards, end flags, actions and progress.

It is an anonymous file, so nothing is left behind however the processes end.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array

from rl_training.types import Array, EnvError

ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
ALIGNMENT = 64
"""Bytes; a cache line, so that two arrays never share one."""
_WORD = struct.Struct("=q")


def anonymous_file() -> int:
    """A file descriptor of shareable memory, empty until a `WorkerMemory` gives it its size."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rl-training-workers")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


# While a worker builds, before the memory has its layout, its word of `beats` holds the environment it is building: the
# index plus one, so that 0 means that it has not begun.


def tell_building(fd: int, worker: int, env_index: int) -> None:
    """Record, in a worker, which environment it builds next."""
    os.pwrite(fd, _WORD.pack(env_index + 1), worker * _WORD.size)


def building_of(fd: int, worker: int) -> int | None:
    """The environment that a worker is building; None before the first."""
    word = os.pread(fd, _WORD.size, worker * _WORD.size)
    return _WORD.unpack(word)[0] - 1 if len(word) == _WORD.size and any(word) else None


def clear_building(fd: int, worker: int) -> None:
    """Clear the record of a worker, before another process replaces it."""
    os.pwrite(fd, _WORD.pack(0), worker * _WORD.size)


class WorkerMemory:
    """Views of one shared mapping; every process that knows the spaces and the counts finds the same layout.

    `observations` mirrors the observation space with (N, ...) arrays. `actions` is None where the action space is not a
    single array. Progress: `beats[w]` counts the calls that worker w began, `busy[w]` is the environment it is in (-1
    between commands), `steps[i]` the step of environment i's episode (0: it is being reset or has just been),
    `seeds[i]` the seed of that episode (-1: unknown), `resets[i]` how many resets its log has counted, begun ones
    included.
    """

    def __init__(
        self, fd: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], counts: tuple[int, int]
    ) -> None:
        check_fixed_size(observation_space)
        sizing = _Arena(None)
        self._lay_out(sizing, observation_space, action_space, counts)
        if os.fstat(fd).st_size < sizing.offset:
            os.ftruncate(fd, sizing.offset)
        self._lay_out(_Arena(mmap.mmap(fd, sizing.offset)), observation_space, action_space, counts)

    def _lay_out(
        self,
        arena: _Arena,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        counts: tuple[int, int],
    ) -> None:
        num_envs, num_workers = counts
        self.beats = arena.take((num_workers,), np.int64)
        self.busy = arena.take((num_workers,), np.int64)
        self.steps = arena.take((num_envs,), np.int64)
        self.seeds = arena.take((num_envs,), np.int64)
        self.resets = arena.take((num_envs,), np.int64)
        self.rewards = arena.take((num_envs,), np.float64)
        self.terminated = arena.take((num_envs,), np.bool_)
        self.truncated = arena.take((num_envs,), np.bool_)
        self.observations: Any = create_empty_array(observation_space, num_envs, arena.take)
        self.actions: Array | None = None
        if isinstance(action_space, ARRAY_SPACES):
            self.actions = cast(Array, create_empty_array(action_space, num_envs, arena.take))


class _Arena:
    """Allocates arrays one after the other; without a buffer it only measures the size."""

    def __init__(self, buffer: mmap.mmap | None) -> None:
        self.buffer = buffer
        self.offset = 0

    def take(self, shape: tuple[int, ...], dtype: Any) -> Array:
        start = -(-self.offset // ALIGNMENT) * ALIGNMENT
        self.offset = start + int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self.buffer is None:
            return np.broadcast_to(np.zeros((), dtype), shape)
        return np.ndarray(shape, dtype, self.buffer, start)


def check_fixed_size(space: spaces.Space[Any]) -> None:
    """Refuse observations that have no fixed place in shared memory (Text, Sequence, Graph, ...)."""
    if isinstance(space, spaces.Dict):
        for child in space.spaces.values():
            check_fixed_size(child)
    elif isinstance(space, spaces.Tuple):
        for child in space.spaces:
            check_fixed_size(child)
    elif not isinstance(space, ARRAY_SPACES):
        raise EnvError(
            f"observation space {space} has no fixed size, so workers cannot share it; use env.vectorization: sync"
        )


def copy_rows(tree: Any) -> Any:
    """A private copy of a tree of shared arrays."""
    if isinstance(tree, dict):
        return {key: copy_rows(child) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(copy_rows(child) for child in tree)
    return tree.copy()


def row_of(tree: Any, index: int) -> Any:
    """Row `index` of a tree of arrays, copied: one environment's observation."""
    if isinstance(tree, dict):
        return {key: row_of(child, index) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(row_of(child, index) for child in tree)
    return np.array(tree[index])


def copy_obs(tree: Any, obs: Any) -> Any:
    """A private copy of one environment's observation, with the dtypes of the tree."""
    if isinstance(tree, dict):
        return {key: copy_obs(child, obs[key]) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(copy_obs(child, part) for child, part in zip(tree, obs, strict=True))
    return np.array(obs, tree.dtype)


def write_row(tree: Any, index: int, obs: Any) -> None:
    """Write one environment's observation into row `index`; raises if its shape or kind of dtype is not the space's."""
    if isinstance(tree, np.ndarray):
        value = np.asarray(obs)
        # a plain assignment would broadcast (1,) to (4,) and truncate 1.5 to 1: wrong observations instead of an error
        if value.shape != tree.shape[1:]:
            raise ValueError(f"the observation has shape {value.shape}, the observation space says {tree.shape[1:]}")
        if value.dtype == tree.dtype:
            tree[index] = value
        else:
            np.copyto(tree[index, ...], value, casting="same_kind")
    elif isinstance(tree, dict):
        for key, child in tree.items():
            write_row(child, index, obs[key])
    else:
        for child, part in zip(tree, obs, strict=True):
            write_row(child, index, part)
