"""Uniform experience replay: a pre-allocated ring of transitions.

Next observations are stored beside the observations, not looked up in the following row: they stay right when that row
is overwritten and when an episode ends. `terminated` and `truncated` are kept apart, so a learner can bootstrap where
an episode was only cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.data.storage import (
    DTypes,
    Shapes,
    Tree,
    allocate,
    as_tuple,
    check_same_layout,
    fit_capacity,
    map_tree,
    read,
    row_bytes,
    to_tensors,
    write,
)
from rl_training.seeding import generator_state, set_generator_state, stream
from rl_training.types import Array, Carry, CheckpointError, ConfigError, Obs, StateDict, VectorStep

_FIELDS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")


def replay_memory_bytes(
    capacity: int,
    obs_shape: Shapes,
    action_shape: Shapes,
    *,
    obs_dtype: DTypes = np.float32,
    action_dtype: DTypes = np.float32,
) -> int:
    """Bytes a full ReplayBuffer takes: both observations, the action, a float32 reward and two flags per transition.

    >>> replay_memory_bytes(1, 17, 6)
    166
    """
    return capacity * (2 * row_bytes(obs_shape, obs_dtype) + row_bytes(action_shape, action_dtype) + 4 + 2)


class ReplayBuffer:
    """The last `capacity` transitions; `add` one row or N, `sample` with replacement.

    Shapes are those of one environment's observation and action and may be dicts of shapes. Storage is NumPy in host
    memory; samples are NumPy too, or torch tensors on `device` where one is given. A capacity that does not fit into
    memory, or cannot hold one step of `num_envs` environments, is refused before anything is allocated
    (`storage.fit_capacity` shrinks it instead).
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: Shapes,
        action_shape: Shapes,
        device: Any = None,
        *,
        obs_dtype: DTypes = np.float32,
        action_dtype: DTypes = np.float32,
        num_envs: int = 1,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.memory_bytes = replay_memory_bytes(
            capacity, obs_shape, action_shape, obs_dtype=obs_dtype, action_dtype=action_dtype
        )
        self.capacity = fit_capacity(capacity, self.memory_bytes // max(capacity, 1), on_memory="refuse")
        if capacity < num_envs:
            raise ConfigError(f"a buffer of {capacity} transitions cannot hold one step of {num_envs} environments")
        self.device = device
        self.rng = stream(0, "buffer") if rng is None else rng
        self._key = next(iter(obs_shape)) if isinstance(obs_shape, Mapping) else ""
        self._row_shape = as_tuple(obs_shape[self._key] if isinstance(obs_shape, Mapping) else obs_shape)
        self.obs = allocate((capacity,), obs_shape, obs_dtype)
        self.next_obs = allocate((capacity,), obs_shape, obs_dtype)
        self.actions = allocate((capacity,), action_shape, action_dtype)
        self.rewards: Array = np.zeros(capacity, np.float32)
        self.terminated: Array = np.zeros(capacity, np.bool_)
        self.truncated: Array = np.zeros(capacity, np.bool_)
        self._position = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, obs: Obs, action: Any, reward: Any, next_obs: Obs, done: Any, truncated: Any = False) -> None:
        """Copy in one transition, or N of them where everything has a leading axis of N. `done` means terminated."""
        start, capacity = self._position, self.capacity
        count = self._rows_of(obs)
        if count is None:
            rows: Any = start
            stop = start + 1
        else:
            stop = start + count
            rows = slice(start, stop) if stop <= capacity else self._wrapped(start, stop)
        write(self.obs, rows, obs)
        write(self.next_obs, rows, next_obs)
        write(self.actions, rows, action)
        self.rewards[rows] = reward
        self.terminated[rows] = done
        self.truncated[rows] = truncated
        if stop < capacity:
            self._position = stop
            if self._size < stop:
                self._size = stop
        else:
            self._position = stop - capacity
            self._size = capacity

    def begin(self, obs: Obs, carry: Carry) -> None:
        """A new stretch of collection; nothing to do, transitions stand for themselves."""

    def store(self, step: VectorStep) -> None:
        """Add what a collector saw; the reset rows of NEXT_STEP environments are no transitions and are left out."""
        valid = step.valid
        if not valid.any():
            return
        rows = (step.obs, step.actions, step.rewards, step.next_obs, step.terminated, step.truncated)
        if not valid.all():
            rows = tuple(read(tree, valid) for tree in rows)
        self.add(*rows)

    def sample(self, batch_size: int) -> dict[str, Tree]:
        """`batch_size` transitions drawn uniformly with replacement: copies, under `obs actions rewards next_obs
        terminated truncated`."""
        if self._size == 0:
            raise ValueError("the replay buffer is empty: add() transitions before sample()")
        rows = self.rng.integers(self._size, size=batch_size)
        # take is more than twice as fast as indexing with an array
        batch = {name: map_tree(lambda leaf: leaf.take(rows, axis=0), getattr(self, name)) for name in _FIELDS}
        if self.device is None:
            return batch
        return {name: to_tensors(tree, self.device) for name, tree in batch.items()}

    def state_dict(self) -> StateDict:
        """Everything, exactly. The arrays are views of the filled part: write them or copy them before the next add."""
        size = self._size
        arrays = {name: read(getattr(self, name), slice(size)) for name in _FIELDS}
        return {**arrays, "position": self._position, "capacity": self.capacity, "rng": generator_state(self.rng)}

    def load_state_dict(self, state: StateDict, /) -> None:
        size = len(state["rewards"])
        if state["capacity"] != self.capacity:
            raise CheckpointError(
                f"the saved replay buffer holds {state['capacity']:,} transitions, this one {self.capacity:,}: "
                "resume with the same buffer.size"
            )
        targets = {name: read(getattr(self, name), slice(size)) for name in _FIELDS}
        for name, target in targets.items():
            check_same_layout(name, state[name], target)
        for name, target in targets.items():
            write(target, ..., state[name])
        self._position, self._size = int(state["position"]), size
        set_generator_state(self.rng, state["rng"])

    def _rows_of(self, obs: Obs) -> int | None:
        """N for observations (N, *shape), None for a single one."""
        leaf = obs[self._key] if isinstance(obs, dict) else obs
        shape = leaf.shape if isinstance(leaf, np.ndarray) else np.shape(leaf)
        if shape == self._row_shape:
            return None
        if shape[1:] == self._row_shape:
            return int(shape[0])
        raise ValueError(f"an observation has shape {shape}; this buffer takes {self._row_shape} or (N, *shape)")

    def _wrapped(self, start: int, stop: int) -> Array:
        """Row numbers from `start` on, over the end of the ring to its beginning."""
        if stop - start > self.capacity:
            raise ValueError(f"{stop - start} transitions at once do not fit into a buffer of {self.capacity}")
        return np.arange(start, stop) % self.capacity
