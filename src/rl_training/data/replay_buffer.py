"""Experience replay: a ring of transitions; samples are uniform or by priority, of 1 step, n steps or sequences.

Next observations are stored beside the observations, not looked up in the following row: they stay correct when that
row is overwritten and when an episode ends. `terminated` and `truncated` are separate, so a learner can bootstrap where
an episode was only truncated. Stored rows never change, so a checkpoint writes only the new ones.

Rows are numbered from the first one ever stored. Row g is step g // num_envs of environment g % num_envs and lies at
index g % capacity, so n-step windows and sequences find the next row of the same environment num_envs further on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from rl_training.checkpointing.row_log import LogIdentity, RowLog
from rl_training.data.n_step import Outcomes, check_n_step, closed_windows, n_step_windows
from rl_training.data.priorities import Drawable, Priorities
from rl_training.data.replay_options import ReplayKeywords, ReplayOptions
from rl_training.data.replay_state import RingFormat
from rl_training.data.sequence import check_sequence_length, draw_sequences, sequence_starts
from rl_training.data.storage import (
    DTypes,
    Layout,
    Shapes,
    Tree,
    allocate,
    as_tuple,
    fit_capacity,
    row_bytes,
    to_numpy,
    to_tensors,
    write,
)
from rl_training.data.sum_tree import BYTES_PER_WEIGHT
from rl_training.seeding import generator_state, set_generator_state, stream
from rl_training.types import Array, Carry, ConfigError, Obs, StateDict, VectorStep

_FIELDS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")
_COLUMNS = (*_FIELDS, "skipped")
_NONE: Array = np.empty(0, np.int64)
PRIORITY = "priority"
"""Extra of a step: the priorities (N,) with which its transitions are to enter."""


class ReplayBuffer:
    """The last `capacity` transitions; `add` one row or N, `sample` with replacement.

    Shapes are those of one environment's observation and action and may be dicts of shapes. Storage is NumPy in host
    memory; samples are NumPy too, or torch tensors on `device` where one is given. The remaining keywords are the
    fields of `ReplayOptions`: `n_step`, `gamma`, `priorities`, `on_memory`, `sequence_length`, `carry`. A capacity that
    does not fit into memory is refused before anything is allocated, unless it may shrink; one too small for a step of
    all environments is refused.
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
        **options: Unpack[ReplayKeywords],
    ) -> None:
        self.layout = Layout(obs_shape, action_shape, obs_dtype, action_dtype, num_envs)
        """What a stored row consists of."""
        self.device = device
        self.num_envs = num_envs
        self.rng = stream(0, "buffer") if rng is None else rng
        self.options = ReplayOptions(**options)
        self.n_step = self.options.n_step
        self.gamma = self.options.gamma
        self.priorities = self.options.priorities
        self.sequence_length = self.options.sequence_length
        self._key = next(iter(obs_shape)) if isinstance(obs_shape, Mapping) else ""
        self._row_shape = as_tuple(obs_shape[self._key] if isinstance(obs_shape, Mapping) else obs_shape)
        self._rows_per_step = None if num_envs == 1 else num_envs
        self._allocate(fit_capacity(capacity, self._row_bytes(), on_memory=self.options.on_memory))

    def _row_bytes(self) -> int:
        """Memory of one transition."""
        carry = sum(row_bytes(shape, dtype) for shape, dtype in self.options.carry.values())
        return self.layout.transition_bytes + carry + (0 if self.priorities is None else BYTES_PER_WEIGHT)

    def _allocate(self, capacity: int) -> None:
        """Make the ring, empty."""
        if capacity < self.num_envs:
            raise ConfigError(
                f"a buffer of {capacity} transitions cannot hold one step of {self.num_envs} environments"
            )
        check_n_step(self.n_step, self.gamma, capacity, self.num_envs)
        if self.sequence_length is not None:
            check_sequence_length(self.sequence_length, capacity, self.num_envs)
        self.capacity = capacity
        self.memory_bytes = capacity * self._row_bytes()
        self.obs = allocate((capacity,), *self.layout.obs)
        self.next_obs = allocate((capacity,), *self.layout.obs)
        self.actions = allocate((capacity,), *self.layout.actions)
        self.rewards: Array = np.zeros(capacity, np.float32)
        self.terminated: Array = np.zeros(capacity, np.bool_)
        self.truncated: Array = np.zeros(capacity, np.bool_)
        self.skipped: Array = np.zeros(capacity, np.bool_)
        """Rows that hold no transition (the reset steps of NEXT_STEP environments) but keep the steps in order."""
        self.carry = {name: allocate((capacity,), *layout) for name, layout in self.options.carry.items()}
        """What is stored of a policy's memory with each row."""
        self._position = 0
        self._laps = 0
        self._size = 0
        self._num_skipped = 0
        self._skipped_waiting = 0
        self._in_step = True
        self._identity = LogIdentity()
        self._known = Drawable(0, 0, _NONE, -1)
        if self.priorities is not None:
            self.priorities.attach(capacity)

    # -- filling ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Transitions that can be sampled: their n-step window is complete, or their episode has ended. Sequences
        count where they are complete."""
        if self.n_step == 1 and self.sequence_length is None:
            return self._size - self._num_skipped
        drawable = self._drawable()
        if self.sequence_length is not None:
            return drawable.stop - drawable.start
        return drawable.stop - drawable.start + len(drawable.early) - self._num_skipped + self._skipped_waiting

    def add(self, obs: Obs, action: Any, reward: Any, next_obs: Obs, done: Any, truncated: Any = False) -> None:
        """Copy in one transition, or N of them where everything has a leading axis of N. `done` means terminated.

        Rows come in the order of time, one for each of `num_envs` environments. Any other number of rows is accepted
        too, but then n-step transitions and sequences cannot be sampled.
        """
        start, capacity = self._position, self.capacity
        count = self._rows_of(obs)
        if count != self._rows_per_step:
            self._check_rows(1 if count is None else count)
        if count is None:
            count, stop = 1, start + 1
            rows: Any = start
        else:
            stop = start + count
            rows = slice(start, stop) if stop <= capacity else np.arange(start, stop) % capacity
        if self._num_skipped:
            self._forget_skipped(rows)
        write(self.obs, rows, obs)
        write(self.next_obs, rows, next_obs)
        write(self.actions, rows, action)
        self.rewards[rows] = reward
        self.terminated[rows] = done
        self.truncated[rows] = truncated
        if stop < capacity:
            self._position = stop
        else:
            self._position = stop - capacity
            self._laps += 1
        if self._size < capacity:
            self._size = min(self._size + count, capacity)

    def begin(self, obs: Obs, carry: Carry) -> None:
        """Part of the collector's protocol; a replay buffer has nothing to prepare."""

    def store(self, step: VectorStep) -> None:
        """Add one step from a collector. The reset rows of NEXT_STEP environments are stored but never sampled. Where
        the step brings a `priority`, its rows enter with that one."""
        self.add(step.obs, step.actions, step.rewards, step.next_obs, step.terminated, step.truncated)
        if self.priorities is not None and PRIORITY in step.extras:
            self.priorities.announce(np.arange(self._written - self.num_envs, self._written), step.extras[PRIORITY])
        for name, ring in self.carry.items():
            ring[np.arange(self._position - self.num_envs, self._position)] = step.extras[f"carry/{name}"]
        if not step.valid.all():
            rows = np.arange(self._position - self.num_envs, self._position)[~step.valid]
            self.skipped[rows] = True
            self._num_skipped += len(rows)

    def drop_open_episodes(self) -> None:
        """Mark a discontinuity: what is stored next does not continue the newest rows. A step without transitions is
        inserted, like the reset rows of NEXT_STEP environments; no window, sequence or episode reaches across it."""
        if self._size < self.num_envs or not self._in_step:
            return  # nothing to cut, or rows that are never joined anyway
        newest = np.arange(self._written - self.num_envs, self._written) % self.capacity
        if self.skipped.take(newest).all():
            return
        obs, none = self._read("next_obs", newest), np.zeros(self.num_envs, bool)
        rewards = np.zeros(self.num_envs, np.float32)
        carry = {f"carry/{name}": np.zeros_like(ring[: self.num_envs]) for name, ring in self.carry.items()}
        self.store(VectorStep(obs, self._read("actions", newest), rewards, none, none, none, none, obs, carry))

    def _forget_skipped(self, rows: Any) -> None:
        """Clear the `skipped` marks of rows that are about to be overwritten."""
        self._num_skipped -= int(np.count_nonzero(self.skipped[rows]))
        self.skipped[rows] = False

    def _rows_of(self, obs: Obs) -> int | None:
        """N for observations (N, *shape), None for a single one."""
        leaf = obs[self._key] if isinstance(obs, dict) else obs
        shape = leaf.shape if isinstance(leaf, np.ndarray) else np.shape(leaf)
        if shape == self._row_shape:
            return None
        if shape[1:] == self._row_shape:
            return int(shape[0])
        raise ValueError(f"an observation has shape {shape}; this buffer takes {self._row_shape} or (N, *shape)")

    def _check_rows(self, count: int) -> None:
        """Check rows that are not exactly one step. Unless they are whole steps, their order in time is lost."""
        if count > self.capacity:
            raise ValueError(f"{count} transitions at once do not fit into a buffer of {self.capacity}")
        if count % self.num_envs:
            if self.n_step > 1:
                raise ValueError(
                    f"{count} rows are not whole steps of {self.num_envs} environments, which n-step transitions need"
                )
            self._in_step = False

    # -- sampling -----------------------------------------------------------------------------------------------------

    def sample(self, batch_size: int, *, beta: float | None = None) -> dict[str, Tree]:
        """`batch_size` transitions sampled with replacement: copies, under `obs actions rewards next_obs terminated
        truncated`, and `discounts` where the buffer has a gamma.

        With priorities also `weights` (importance sampling) and `indices` (for `update_priorities`); `beta` overrides
        the exponent of the priorities for this batch. With a `sequence_length` the samples are sequences, as from
        `sample_sequences`, with `carry` for what was remembered before their first step, where that is stored.
        """
        index = self._draw(batch_size)
        batch = self._batch(index) if self.sequence_length is None else self._sequences(self._numbers(index))
        if self.priorities is not None:
            batch["weights"] = self.priorities.importance(index, beta)
            batch["indices"] = self._numbers(index)
        elif beta is not None:
            raise ValueError("this replay buffer samples uniformly: there is no beta to set")
        return self._as_asked(batch)

    def sample_sequences(self, batch_size: int, length: int, rng: np.random.Generator | None = None) -> dict[str, Tree]:
        """`batch_size` sequences of `length` consecutive steps of one environment, (B, L, ...): the keys of a 1-step
        transition, `is_first` where an episode starts, and `valid`, False where a row holds no transition.

        Sampled uniformly among all complete ones, with the buffer's own generator unless `rng` is given, which leaves
        the training as it is. They may cross the ends of episodes, never the write position. `carry` is what is stored
        with the first row, where something is.
        """
        if not self._in_step:
            raise ValueError(f"sequences need rows added by whole steps of num_envs={self.num_envs} environments")
        first, written = self._written - self._size, self._written
        rng = self.rng if rng is None else rng
        numbers = draw_sequences(first, written, self.num_envs, batch_size, length, rng)
        return self._as_asked({**self._steps(numbers), **self._carried(numbers[:, 0])})

    def _numbers(self, index: Array) -> Array:
        """Row numbers of ring indices."""
        numbers: Array = index + self.capacity * (self._laps - (index >= self._position))
        return numbers

    def _sequences(self, starts: Array) -> dict[str, Tree]:
        """The sequences that start with these rows, by number."""
        assert self.sequence_length is not None
        batch = self._steps(starts[:, None] + self.num_envs * np.arange(self.sequence_length))
        return {**batch, **self._carried(starts)}

    def _carried(self, starts: Array) -> dict[str, Tree]:
        """What is stored of a policy's memory with these rows, by number; nothing where nothing is stored."""
        index = starts % self.capacity
        return {"carry": {name: ring.take(index, axis=0) for name, ring in self.carry.items()}} if self.carry else {}

    def _steps(self, numbers: Array) -> dict[str, Tree]:
        """Sequences of rows (B, L), with where episodes begin."""
        index, before = numbers % self.capacity, (numbers - self.num_envs) % self.capacity
        batch: dict[str, Tree] = {name: self._read(name, index) for name in _FIELDS}
        ended = self.terminated.take(before) | self.truncated.take(before) | self.skipped.take(before)
        batch["valid"] = ~self.skipped.take(index)
        batch["is_first"] = batch["valid"] & (ended | (numbers < self.num_envs))
        return batch

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Set new priorities, finite and not negative, for the transitions of a batch, by its `indices`."""
        self._prioritized().update(to_numpy(indices), to_numpy(priorities))

    def _prioritized(self) -> Priorities:
        """The priorities, up to date with the ring."""
        if self.priorities is None:
            raise ValueError("this replay buffer samples uniformly: it has no priorities to update")
        self.priorities.follow(self._drawable(), self.skipped if self._num_skipped else None)
        return self.priorities

    @property
    def _written(self) -> int:
        """Number of rows ever written."""
        return self._laps * self.capacity + self._position

    def _draw(self, batch_size: int) -> Array:
        """Ring indices of the transitions of a new batch."""
        if not len(self):
            what = f"holds no complete {self.n_step}-step transition" if self._size and self.n_step > 1 else "is empty"
            if self._size and self.sequence_length is not None:
                what = f"holds no sequence of {self.sequence_length} steps yet"
            raise ValueError(f"the replay buffer {what}: add() transitions before sample()")
        if self.sequence_length is not None and not self._in_step:
            raise ValueError(f"sequences need rows added by whole steps of num_envs={self.num_envs} environments")
        if self.priorities is not None:
            return self._prioritized().draw(batch_size, self.rng)
        if self.sequence_length is not None:
            return self._pick(self._drawable(), batch_size)
        size = self._size
        whole = size == self.capacity or (self._laps == 0 and size == self._position)
        if self.n_step == 1 and whole and not self._num_skipped:
            return self.rng.integers(size, size=batch_size)
        drawable = self._drawable()
        index = self._pick(drawable, batch_size)
        if self._num_skipped:
            while (again := np.flatnonzero(self.skipped.take(index))).size:
                index[again] = self._pick(drawable, again.size)
        return index

    def _pick(self, drawable: Drawable, count: int) -> Array:
        """Ring indices of `count` drawable rows, sampled uniformly."""
        complete = drawable.stop - drawable.start
        picks = self.rng.integers(complete + len(drawable.early), size=count)
        numbers = picks + drawable.start
        if len(drawable.early):
            late = picks >= complete
            numbers[late] = drawable.early.take(picks[late] - complete)
        return numbers % self.capacity

    def _drawable(self) -> Drawable:
        """The rows whose n-step window is complete, or cut short by the end of their episode."""
        written = self._written
        start = written - self._size
        if self.sequence_length is not None:
            start, stop = sequence_starts(start, written, self.num_envs, self.sequence_length)
            return Drawable(start, max(start, stop), _NONE, written)
        if self.n_step == 1:
            return Drawable(start, written, _NONE, written)
        if self._known.written == written and self._known.start == start:
            return self._known
        stop = max(written - (self.n_step - 1) * self.num_envs, start)
        recent = np.arange(stop, written)
        index = recent % self.capacity
        ended, skipped = self.terminated.take(index) | self.truncated.take(index), self.skipped.take(index)
        closed = closed_windows(ended.reshape(-1, self.num_envs), skipped.reshape(-1, self.num_envs))
        self._skipped_waiting = int(np.count_nonzero(skipped))
        self._known = Drawable(start, stop, recent[closed.reshape(-1)], written)
        return self._known

    def _batch(self, index: Array) -> dict[str, Tree]:
        """The transitions that start at these ring indices."""
        if self.n_step == 1:
            batch = {name: self._read(name, index) for name in _FIELDS}
            if self.gamma is not None:
                batch["discounts"] = np.full(len(index), self.gamma, np.float32)
            return batch
        assert self.gamma is not None
        window = n_step_windows(index, self.n_step, self.gamma, self._outcomes, self._following)
        return {
            "obs": self._read("obs", index),
            "actions": self._read("actions", index),
            "rewards": window.rewards,
            "next_obs": self._read("next_obs", window.last),
            "terminated": window.terminated,
            "truncated": window.truncated,
            "discounts": window.discounts,
        }

    def _read(self, name: str, index: Array) -> Tree:
        """Copies of rows. `take` is more than twice as fast as indexing with an array."""
        tree = getattr(self, name)
        if isinstance(tree, dict):
            return {key: leaf.take(index, axis=0) for key, leaf in tree.items()}
        return tree.take(index, axis=0)

    def _outcomes(self, index: Array) -> Outcomes:
        return Outcomes(self.rewards.take(index), self.terminated.take(index), self.truncated.take(index))

    def _following(self, index: Array) -> tuple[Array, Array]:
        """The next rows of the same environments, and whether they hold transitions."""
        after = (index + self.num_envs) % self.capacity
        return after, ~self.skipped.take(after)

    def _as_asked(self, batch: dict[str, Tree]) -> dict[str, Tree]:
        if self.device is None:
            return batch
        return {name: to_tensors(tree, self.device) for name, tree in batch.items()}

    # -- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> StateDict:
        """The exact state. Rows and priorities are views: write or copy them before the next `add`."""
        written = self._written
        state: StateDict = {
            "rows": RowLog(self._columns(), written - self._size, written, self._identity),
            "capacity": self.capacity,
            "num_envs": self.num_envs,
            "in_step": self._in_step,
            "layout": self._row_format(),
            "rng": generator_state(self.rng),
        }
        if self.priorities is not None:
            state["priorities"] = self._prioritized().state_dict(min(written, self.capacity))
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        mine = RingFormat(self._row_format(), self.capacity, self.num_envs, self.priorities is not None)
        mine.check(state, may_resize=self.options.on_memory == "shrink")
        if state["capacity"] != self.capacity:
            self._allocate(fit_capacity(int(state["capacity"]), self._row_bytes(), on_memory="refuse"))
        rows = state["rows"]
        self._identity = rows.copy_into(self._columns())
        self._laps, self._position = divmod(int(rows.stop), self.capacity)
        self._size = int(rows.stop - rows.start)
        alive = np.zeros_like(self.skipped)
        alive[np.arange(rows.start, rows.stop) % self.capacity] = True
        self.skipped &= alive
        self._num_skipped = int(np.count_nonzero(self.skipped))
        self._in_step = bool(state["in_step"])
        self._known = Drawable(0, 0, _NONE, -1)
        set_generator_state(self.rng, state["rng"])
        if self.priorities is not None:
            self.priorities.load_state_dict(state["priorities"], self._drawable())

    def _columns(self) -> dict[str, Array]:
        """The rings by name; a dict of them as "obs/key"."""
        columns: dict[str, Array] = {}
        for name in _COLUMNS:
            tree = getattr(self, name)
            leaves = {f"{name}/{key}": leaf for key, leaf in tree.items()} if isinstance(tree, dict) else {name: tree}
            columns.update(leaves)
        columns.update({f"carry/{name}": ring for name, ring in self.carry.items()})
        return columns

    def _row_format(self) -> dict[str, str]:
        """The columns of a row with their dtypes and shapes, compared at a resume."""
        return {name: f"{ring.dtype}{list(ring.shape[1:])}" for name, ring in self._columns().items()}
