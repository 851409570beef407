"""Sequences of rows from the ring of the compiled lane, and as arrivals: the twin of `rl_training.data.sequence`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.hparams.off_policy import SequenceOptions
from rl_training.jax.data.replay_buffer import CARRY, FIELDS, Ring, capacity_of, rows_at
from rl_training.jax.types import Array, Batch

IS_FIRST = "is_first"
"""The column that says where an episode starts."""


def sequence_columns(sequences: SequenceOptions | None) -> tuple[str, ...]:
    """Columns of a ring that sequences are drawn from, besides those of transitions; none without sequences."""
    return () if sequences is None else (IS_FIRST, *(f"{CARRY}{name}" for name in sequences.carry))


def sample_sequences(ring: Ring, key: Array, batch_size: int, length: int, *, num_envs: int) -> Batch:
    """B sequences of `length` consecutive steps of one environment, (B, L, ...), drawn uniformly: the columns of a
    row, `valid`, and as `carry` the memory that is stored with the first row.

    They may cross the ends of episodes, never the write position. The ring must hold `length` steps.
    """
    capacity = np.uint32(capacity_of(ring))
    size = jnp.minimum(ring.written, capacity)
    starts = size - np.uint32((length - 1) * num_envs)  # rows that can begin a sequence
    drawn = jax.random.bits(key, (batch_size,)) % starts
    first = (ring.written - size + drawn) % capacity
    index = (first[:, None] + np.uint32(num_envs) * jnp.arange(length, dtype=jnp.uint32)) % capacity
    batch = {name: rows_at(ring.rows[name], index) for name in (*FIELDS, IS_FIRST)}
    memory = {name.removeprefix(CARRY): rows for name, rows in ring.rows.items() if name.startswith(CARRY)}
    return {**batch, "valid": jnp.ones(index.shape, bool), "carry": rows_at(memory, first)}


def arrivals(batch: Batch) -> Batch:
    """Sequences of rows (B, T, ...) as T arrivals each; see `rl_training.data.sequence.arrivals`."""
    valid, first = batch["valid"], batch["is_first"]
    length = valid.shape[1]
    ends = jnp.cumsum(valid * (1 + first.astype(jnp.int32)), axis=1)  # (B, T): arrivals up to and with each row
    time = jnp.arange(length)
    row = (ends[:, None, :] <= time[:, None]).sum(2)  # (B, T): the row behind each arrival; T where there is none
    filled = row < length
    row = jnp.minimum(row, length - 1)
    sequence = jnp.arange(len(row))[:, None]

    def at(values: Any) -> Any:
        return values[sequence, row]

    reset = at(first) & (time == at(ends) - 2)
    goes_on = filled & ~reset
    cut = jnp.pad(~goes_on[:, 1:], ((0, 0), (0, 1)))  # no end, but what follows is another episode

    def observed(next_obs: Any, obs: Any) -> Any:
        place = reset.reshape(*reset.shape, *(1,) * (obs.ndim - 2))
        return jnp.where(place, at(obs), at(next_obs))

    return {
        "obs": jax.tree.map(observed, batch["next_obs"], batch["obs"]),
        "actions": at(batch["actions"]),
        "rewards": jnp.where(goes_on, at(batch["rewards"]), 0.0),
        "is_first": reset | ~filled,
        "is_last": goes_on & (at(batch["terminated"] | batch["truncated"]) | cut),
        "is_terminal": goes_on & at(batch["terminated"]),
        "valid": filled,
    }
