"""Experience replay: a pre-allocated ring of transitions, drawn uniformly or by priority, as 1-step or n-step ones.

Next observations are stored beside the observations, not looked up in the following row: they stay right when that row
is overwritten and when an episode ends. `terminated` and `truncated` are kept apart, so a learner can bootstrap where
an episode was only cut off. Rows are never changed once they are stored, so a checkpoint writes only what is new.

Row g since the beginning is step g // num_envs of environment g % num_envs, and lies at index g % capacity: whatever
needs the rows of one environment in order (n-step, sequences) finds the next one num_envs further on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rl_training.checkpointing.row_log import LogIdentity, RowLog
from rl_training.data.n_step import Outcomes, check_n_step, closed_windows, n_step_windows
from rl_training.data.priorities import Drawable, Priorities
from rl_training.data.sequence import draw_sequences
from rl_training.data.storage import (
    DTypes,
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
from rl_training.types import Array, Carry, CheckpointError, ConfigError, Obs, StateDict, VectorStep

_FIELDS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")
_COLUMNS = (*_FIELDS, "skipped")
_NONE: Array = np.empty(0, np.int64)


def replay_memory_bytes(
    capacity: int,
    obs_shape: Shapes,
    action_shape: Shapes,
    *,
    obs_dtype: DTypes = np.float32,
    action_dtype: DTypes = np.float32,
) -> int:
    """Bytes a full ReplayBuffer takes: both observations, the action, a float32 reward and three flags per transition.

    >>> replay_memory_bytes(1, 17, 6)
    167
    """
    return capacity * (2 * row_bytes(obs_shape, obs_dtype) + row_bytes(action_shape, action_dtype) + 4 + 3)


class ReplayBuffer:
    """The last `capacity` transitions; `add` one row or N, `sample` with replacement.

    Shapes are those of one environment's observation and action and may be dicts of shapes. Storage is NumPy in host
    memory; samples are NumPy too, or torch tensors on `device` where one is given. With `n_step` above 1 the samples
    are n-step transitions, and rows whose window is still open wait; with `gamma` they carry `discounts`. With
    `priorities` they are drawn by priority. A capacity that does not fit into memory is refused before anything is
    allocated, or made to fit (`on_memory="shrink"`); one that cannot hold a step of all environments is refused.
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
        n_step: int = 1,
        gamma: float | None = None,
        priorities: Priorities | None = None,
        on_memory: Literal["refuse", "shrink"] = "refuse",
    ) -> None:
        self.device = device
        self.num_envs = num_envs
        self.rng = stream(0, "buffer") if rng is None else rng
        self.n_step = n_step
        self.gamma = gamma
        self.priorities = priorities
        self.on_memory = on_memory
        self._layouts = {"obs": (obs_shape, obs_dtype), "actions": (action_shape, action_dtype)}
        self._key = next(iter(obs_shape)) if isinstance(obs_shape, Mapping) else ""
        self._row_shape = as_tuple(obs_shape[self._key] if isinstance(obs_shape, Mapping) else obs_shape)
        self._rows_per_step = None if num_envs == 1 else num_envs
        self._allocate(fit_capacity(capacity, self._row_bytes(), on_memory=on_memory))

    def _row_bytes(self) -> int:
        """Memory of one transition."""
        (obs_shape, obs_dtype), (action_shape, action_dtype) = self._layouts["obs"], self._layouts["actions"]
        row = replay_memory_bytes(1, obs_shape, action_shape, obs_dtype=obs_dtype, action_dtype=action_dtype)
        return row + (0 if self.priorities is None else BYTES_PER_WEIGHT)

    def _allocate(self, capacity: int) -> None:
        """An empty ring."""
        if capacity < self.num_envs:
            raise ConfigError(
                f"a buffer of {capacity} transitions cannot hold one step of {self.num_envs} environments"
            )
        check_n_step(self.n_step, self.gamma, capacity, self.num_envs)
        self.capacity = capacity
        self.memory_bytes = capacity * self._row_bytes()
        self.obs = allocate((capacity,), *self._layouts["obs"])
        self.next_obs = allocate((capacity,), *self._layouts["obs"])
        self.actions = allocate((capacity,), *self._layouts["actions"])
        self.rewards: Array = np.zeros(capacity, np.float32)
        self.terminated: Array = np.zeros(capacity, np.bool_)
        self.truncated: Array = np.zeros(capacity, np.bool_)
        self.skipped: Array = np.zeros(capacity, np.bool_)
        """Rows that are no transitions: the reset steps of NEXT_STEP environments. They keep the time in order."""
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
        """Transitions that can be drawn; of those whose n-step window is open, only what their episode's end closed."""
        if self.n_step == 1:
            return self._size - self._num_skipped
        drawable = self._drawable()
        return drawable.stop - drawable.start + len(drawable.early) - self._num_skipped + self._skipped_waiting

    def add(self, obs: Obs, action: Any, reward: Any, next_obs: Obs, done: Any, truncated: Any = False) -> None:
        """Copy in one transition, or N of them where everything has a leading axis of N. `done` means terminated.

        Rows come in the order of time, one for each of `num_envs` environments. Any other number is fine as long as
        nobody asks for n-step transitions or sequences.
        """
        start, capacity = self._position, self.capacity
        count = self._rows_of(obs)
        if count != self._rows_per_step:
            self._check_rows(1 if count is None else count)
        if count is None:
            count = 1
            rows: Any = start
            stop = start + 1
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
        """A new stretch of collection; nothing to do, transitions stand for themselves."""

    def store(self, step: VectorStep) -> None:
        """Add what a collector saw. The reset rows of NEXT_STEP environments take their place but are never drawn."""
        self.add(step.obs, step.actions, step.rewards, step.next_obs, step.terminated, step.truncated)
        if not step.valid.all():
            rows = np.arange(self._position - self.num_envs, self._position)[~step.valid]
            self.skipped[rows] = True
            self._num_skipped += len(rows)

    def drop_open_episodes(self) -> None:
        """What comes next does not follow from the newest rows: a step that is no transition goes in between, like the
        reset rows of NEXT_STEP environments. No window, sequence or episode reaches over it."""
        if self._size < self.num_envs or not self._in_step:
            return  # nothing to cut, or rows that nobody may join anyway
        newest = np.arange(self._written - self.num_envs, self._written) % self.capacity
        if self.skipped.take(newest).all():
            return
        obs, none = self._read("next_obs", newest), np.zeros(self.num_envs, bool)
        rewards = np.zeros(self.num_envs, np.float32)
        self.store(VectorStep(obs, self._read("actions", newest), rewards, none, none, none, none, obs))

    def _forget_skipped(self, rows: Any) -> None:
        """The marks of rows that are about to be overwritten."""
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
        """Rows that are not one step of all environments: whole steps, or the time is no longer in order."""
        if count > self.capacity:
            raise ValueError(f"{count} transitions at once do not fit into a buffer of {self.capacity}")
        if count % self.num_envs:
            if self.n_step > 1:
                raise ValueError(
                    f"{count} rows are no whole steps of {self.num_envs} environments, which n-step transitions need"
                )
            self._in_step = False

    # -- drawing ------------------------------------------------------------------------------------------------------

    def sample(self, batch_size: int, *, beta: float | None = None) -> dict[str, Tree]:
        """`batch_size` transitions drawn with replacement: copies, under `obs actions rewards next_obs terminated
        truncated`, with `discounts` where the buffer has a gamma.

        By priority: `weights` and `indices` too; the latter are for `update_priorities`. `beta` stands in for the
        priorities' own.
        """
        index = self._draw(batch_size)
        batch = self._batch(index)
        if self.priorities is not None:
            batch["weights"] = self.priorities.importance(index, beta)
            batch["indices"] = index + self.capacity * (self._laps - (index >= self._position))
        elif beta is not None:
            raise ValueError("this replay buffer draws uniformly: there is no beta to set")
        return self._as_asked(batch)

    def sample_sequences(self, batch_size: int, length: int) -> dict[str, Tree]:
        """`batch_size` runs of `length` consecutive steps of one environment, (B, L, ...): the keys of a transition
        (1-step, whatever `n_step` is), with `is_first` where an episode starts and `valid` where a step is one.

        Drawn uniformly among all that are whole. They reach over the ends of episodes, never over the write position.
        """
        if not self._in_step:
            raise ValueError(f"sequences need rows added by whole steps of num_envs={self.num_envs} environments")
        first, written = self._written - self._size, self._written
        numbers = draw_sequences(first, written, self.num_envs, batch_size, length, self.rng)
        index, before = numbers % self.capacity, (numbers - self.num_envs) % self.capacity
        batch: dict[str, Tree] = {name: self._read(name, index) for name in _FIELDS}
        ended = self.terminated.take(before) | self.truncated.take(before) | self.skipped.take(before)
        batch["valid"] = ~self.skipped.take(index)
        batch["is_first"] = batch["valid"] & (ended | (numbers < self.num_envs))
        return self._as_asked(batch)

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Give transitions of a batch new priorities: its `indices`, and numbers from 0 on."""
        self._prioritized().update(to_numpy(indices), to_numpy(priorities))

    def _prioritized(self) -> Priorities:
        """The priorities, up to date with the ring."""
        if self.priorities is None:
            raise ValueError("this replay buffer draws uniformly: it has no priorities to update")
        self.priorities.follow(self._drawable(), self.skipped if self._num_skipped else None)
        return self.priorities

    @property
    def _written(self) -> int:
        """Rows since the beginning."""
        return self._laps * self.capacity + self._position

    def _draw(self, batch_size: int) -> Array:
        """Where the transitions of a batch lie in the ring."""
        if not len(self):
            what = f"holds no complete {self.n_step}-step transition" if self._size and self.n_step > 1 else "is empty"
            raise ValueError(f"the replay buffer {what}: add() transitions before sample()")
        if self.priorities is not None:
            return self._prioritized().draw(batch_size, self.rng)
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
        """Some drawable rows, uniformly."""
        complete = drawable.stop - drawable.start
        picks = self.rng.integers(complete + len(drawable.early), size=count)
        numbers = picks + drawable.start
        if len(drawable.early):
            late = picks >= complete
            numbers[late] = drawable.early.take(picks[late] - complete)
        return numbers % self.capacity

    def _drawable(self) -> Drawable:
        """Which rows have a complete window, or one that their episode's end completed."""
        written = self._written
        start = written - self._size
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
        """The transitions that start at these places of the ring."""
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
        """Copies of rows. take is more than twice as fast as indexing with an array."""
        tree = getattr(self, name)
        if isinstance(tree, dict):
            return {key: leaf.take(index, axis=0) for key, leaf in tree.items()}
        return tree.take(index, axis=0)

    def _outcomes(self, index: Array) -> Outcomes:
        return Outcomes(self.rewards.take(index), self.terminated.take(index), self.truncated.take(index))

    def _following(self, index: Array) -> tuple[Array, Array]:
        """The next rows of the same environments, and whether they are transitions."""
        after = (index + self.num_envs) % self.capacity
        return after, ~self.skipped.take(after)

    def _as_asked(self, batch: dict[str, Tree]) -> dict[str, Tree]:
        if self.device is None:
            return batch
        return {name: to_tensors(tree, self.device) for name, tree in batch.items()}

    # -- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> StateDict:
        """Everything, exactly. Rows and priorities are views: write them or copy them before the next add."""
        written = self._written
        state: StateDict = {
            "rows": RowLog(self._columns(), written - self._size, written, self._identity),
            "capacity": self.capacity,
            "num_envs": self.num_envs,
            "in_step": self._in_step,
            "layout": self._layout(),
            "rng": generator_state(self.rng),
        }
        if self.priorities is not None:
            state["priorities"] = self._prioritized().state_dict(min(written, self.capacity))
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        self._check_fits(state)
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

    def _check_fits(self, state: StateDict) -> None:
        """CheckpointError unless the state is one of a buffer like this."""
        for name, mine in self._layout().items():
            saved = state["layout"].get(name, "nothing")
            if saved != mine:
                raise CheckpointError(
                    f"saved '{name}' is {saved}, this run needs {mine}: the checkpoint belongs to another environment "
                    "or buffer"
                )
        if state["capacity"] != self.capacity and self.on_memory != "shrink":
            raise CheckpointError(
                f"the saved replay buffer holds {state['capacity']:,} transitions, this one {self.capacity:,}: "
                "resume with the same buffer.size"
            )
        if state["num_envs"] != self.num_envs:
            raise CheckpointError(
                f"the saved replay buffer has rows of {state['num_envs']} environments, this one of {self.num_envs}: "
                "resume with the same env.num_envs"
            )
        if ("priorities" in state) != (self.priorities is not None):
            kinds = ("uniform", "prioritised")
            saved, mine = kinds["priorities" in state], kinds[self.priorities is not None]
            raise CheckpointError(f"the saved replay buffer is {saved}, this one {mine}: resume with the same buffer")

    def _columns(self) -> dict[str, Array]:
        """The rings by name; a dict of them as "obs/key"."""
        columns: dict[str, Array] = {}
        for name in _COLUMNS:
            tree = getattr(self, name)
            leaves = {f"{name}/{key}": leaf for key, leaf in tree.items()} if isinstance(tree, dict) else {name: tree}
            columns.update(leaves)
        return columns

    def _layout(self) -> dict[str, str]:
        """What a row is made of, to be compared at a resume."""
        return {name: f"{ring.dtype}{list(ring.shape[1:])}" for name, ring in self._columns().items()}
