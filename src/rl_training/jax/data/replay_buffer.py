"""The replay buffer of the compiled lane: a ring of transitions as a pytree that the driver owns and updates in place.

Row g, counted from the first, is step g // num_envs of environment g % num_envs and is at index g % capacity, as in
`rl_training.data.replay_buffer`; checkpoints write only new rows. The ring is a donated argument of the program and
never passes through a `cond`; otherwise it would be copied at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.checkpointing.row_log import LogIdentity, RowLog
from rl_training.data.sequence import draw_sequences
from rl_training.jax.types import Array, Batch
from rl_training.types import CheckpointError, Progress, StateDict

FIELDS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")
CARRY = "carry/"
"""Prefix of the columns that hold what a policy remembers; a row's is the memory after its own observation."""


class Ring(NamedTuple):
    """The last `capacity` transitions."""

    rows: dict[str, Any]
    """(capacity, ...) by the names in FIELDS, and by those that sequences need."""
    written: Any
    """Number of rows written, reduced to below 2 x capacity; see `folded`."""


def empty_ring(row: Batch, capacity: int, extras: Sequence[str] = ()) -> Ring:
    """An empty ring of `capacity` rows with the shapes and dtypes of `row`, one step of all environments (N, ...);
    `extras` names columns besides FIELDS."""
    names = (*FIELDS, *extras)
    rows = {name: jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), row[name]) for name in names}
    return Ring(rows, jnp.zeros((), jnp.uint32))


def capacity_of(ring: Ring) -> int:
    return int(ring.rows["rewards"].shape[0])


def store(ring: Ring, row: Batch) -> Ring:
    """Overwrite the oldest step with a new step of all N environments; the capacity is a multiple of N."""
    num_envs = row["rewards"].shape[0]
    start = (ring.written % capacity_of(ring)).astype(jnp.int32)
    rows = jax.tree.map(
        lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new.astype(ring.dtype), start, axis=0),
        ring.rows,
        {name: row[name] for name in ring.rows},
    )
    written, capacity = ring.written + np.uint32(num_envs), np.uint32(capacity_of(ring))
    return Ring(rows, jnp.where(written == 2 * capacity, capacity, written))


def folded(written: int, capacity: int) -> np.uint32:
    """A row count reduced to below 2 x capacity, so that it never overflows; unchanged modulo capacity."""
    return np.uint32(written if written < capacity else capacity + written % capacity)


def sample(ring: Ring, key: Array, batch_size: int, *, num_envs: int, n_step: int, gamma: Any) -> Batch:
    """B n-step transitions, drawn uniformly with replacement: `rewards` are n-step sums, `discounts` multiply the
    bootstrap value.

    A window has `n_step` rows, or fewer if its episode ends. The newest n_step - 1 steps cannot start one yet.
    """
    capacity = np.uint32(capacity_of(ring))
    size = jnp.minimum(ring.written, capacity)
    starts = jnp.maximum(size // num_envs, np.uint32(n_step)) - np.uint32(n_step - 1)  # steps that can begin a window
    drawn = jax.random.bits(key, (batch_size,)) % (starts * np.uint32(num_envs))
    first = last = (ring.written - size + drawn) % capacity
    rewards, terminated, truncated = outcomes(ring, first)
    discounts = jnp.full(batch_size, gamma, jnp.float32)
    for i in range(1, n_step):
        goes_on = ~(terminated | truncated) & (drawn + np.uint32(i * num_envs) < size)
        last = jnp.where(goes_on, (last + np.uint32(num_envs)) % capacity, last)
        reward, ends, cuts = outcomes(ring, last)
        rewards = rewards + jnp.where(goes_on, discounts * reward, 0.0)
        discounts = jnp.where(goes_on, gamma * discounts, discounts)
        terminated, truncated = (jnp.where(goes_on, new, old) for new, old in ((ends, terminated), (cuts, truncated)))
    return {
        "obs": rows_at(ring.rows["obs"], first),
        "actions": rows_at(ring.rows["actions"], first),
        "rewards": rewards,
        "next_obs": rows_at(ring.rows["next_obs"], last),
        "terminated": terminated,
        "discounts": discounts,
    }


def outcomes(ring: Ring, index: Array) -> tuple[Any, Any, Any]:
    """Rewards, terminated and truncated of the rows at `index`."""
    rewards, terminated, truncated = (rows_at(ring.rows[name], index) for name in FIELDS[2:] if name != "next_obs")
    return rewards, terminated, truncated


def rows_at(tree: Any, index: Array) -> Any:
    return jax.tree.map(lambda x: x.at[index].get(mode="promise_in_bounds"), tree)


# -- checkpoints ------------------------------------------------------------------------------------------------------


class LoopOwner(Protocol):
    """An object that holds the loop of a run, such as the compiled trainer."""

    loop: Any


class SavedRing:
    """The ring in a run's loop as a `Stateful` part of checkpoints."""

    def __init__(self, owner: LoopOwner, progress: Progress) -> None:
        self.owner = owner
        self.progress = progress
        """Its env steps are the number of rows written."""
        self.num_envs = len(owner.loop.is_first)
        self.capacity = capacity_of(owner.loop.replay)
        self.memory_bytes = sum(int(leaf.nbytes) for leaf in jax.tree.leaves(owner.loop.replay))
        self._identity = LogIdentity()

    def sample_sequences(self, batch_size: int, length: int, rng: np.random.Generator | None = None) -> Batch:
        """Sequences (B, L, ...) as the host's replay buffer gives them, for looking: training draws its own inside the
        program. Only for a ring that was made for sequences."""
        written = self.progress.env_steps
        first = max(written - self.capacity, 0)
        rng = np.random.default_rng(0) if rng is None else rng
        numbers = draw_sequences(first, written, self.num_envs, batch_size, length, rng)
        rows, index = self.owner.loop.replay.rows, numbers % self.capacity
        found = {name: jax.tree.map(lambda x: np.asarray(x)[index], tree) for name, tree in rows.items()}
        carry = {name.removeprefix(CARRY): found.pop(name)[:, 0] for name in rows if name.startswith(CARRY)}
        return {**found, "valid": np.ones(numbers.shape, bool), "carry": carry}

    def state_dict(self) -> StateDict:
        """The rows as views: write or copy them before the next chunk."""
        ring: Ring = self.owner.loop.replay
        written = self.progress.env_steps
        columns = {name: np.asarray(leaf) for name, leaf in columns_of(ring.rows).items()}
        rows = RowLog(columns, max(written - self.capacity, 0), written, self._identity)
        return {"rows": rows, "num_envs": self.num_envs}

    def load_state_dict(self, state: StateDict, /) -> None:
        if state["num_envs"] != self.num_envs:
            raise CheckpointError(
                f"the saved replay has rows of {state['num_envs']} environments, this one of {self.num_envs}: "
                "resume with the same env.num_envs"
            )
        rows = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self.owner.loop.replay.rows)
        self._identity = state["rows"].copy_into(columns_of(rows))
        written = folded(state["rows"].stop, self.capacity)
        self.owner.loop = self.owner.loop._replace(replay=Ring(rows, written))


def columns_of(rows: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a ring by name; those of Dict observations as "obs/key"."""
    columns: dict[str, Any] = {}
    for name, tree in rows.items():
        columns |= {f"{name}/{key}": leaf for key, leaf in tree.items()} if isinstance(tree, dict) else {name: tree}
    return columns
