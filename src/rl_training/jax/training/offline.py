"""The driver of compiled offline runs: many updates from a dataset on the device in one XLA program.

Observations are stored once per step and once more at the end of an episode, as in `data/datasets`; a row's next
observation is found by index. Randomness is a function of the root key and the number of the update. Metrics are summed
inside, over as many calls as a block of updates takes, so how a block is split into calls changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.checks import check_metrics, check_unchanged
from rl_training.jax.programs.disk_cache import Program
from rl_training.jax.types import Batch, JaxAlgorithm, Metrics
from rl_training.types import Array


class Columns(NamedTuple):
    """A dataset as arrays; R rows."""

    observations: Any
    """(R + E, ...), with the final observation of each of E episodes."""
    places: Any
    """(R,): where each row's observation is; the next one is one further on."""
    rows: dict[str, Any]
    """actions rewards terminated, and what else the algorithm asks for, (R, ...)."""


class Learning(NamedTuple):
    """What an update changes."""

    learner: Any
    totals: Metrics
    """Sums of the metrics since the block began."""


class OfflineDriver(NamedTuple):
    """The program of an offline run."""

    begin: Callable[[Any, Columns], Learning]
    """(learner, columns) -> the start of a block, with sums of 0."""
    advance: Callable[[Learning, Columns, Any, Any, Any], Learning]
    """(learning, columns, root key, number of the first update's call, number of calls) -> learning after them. The
    input is donated: do not touch it afterwards."""


def make_offline_driver(algorithm: JaxAlgorithm, batch_size: int, description: str | None = None) -> OfflineDriver:
    """The program, compiled on first use. `batch_size` counts the transitions of one update; with a `description` of
    everything that determines the program it is stored on disk."""
    per_call = algorithm.updates_per_learn

    def call(columns: Columns, key: Any, learner: Any, number: Any) -> tuple[Any, Metrics]:
        sample_key, learn_key = jax.random.split(jax.random.fold_in(key, number))
        batch = drawn(columns, sample_key, batch_size * per_call)
        done = number.astype(jnp.float32) * np.float32(per_call)
        learner, metrics = algorithm.learn(learner, batch, done, learn_key)
        return learner, metrics

    def advance(learning: Learning, columns: Columns, key: Any, first: Any, count: Any) -> Learning:
        after, metrics = jax.eval_shape(call, columns, key, learning.learner, first)
        check_unchanged(learning.learner, after, "learn", "state")
        check_metrics(metrics)

        def body(i: Any, learning: Learning) -> Learning:
            learner, metrics = call(columns, key, learning.learner, first + i)
            return Learning(learner, jax.tree.map(jnp.add, learning.totals, metrics))

        result: Learning = jax.lax.fori_loop(np.uint32(0), count, body, learning)
        return result

    def begin(learner: Any, columns: Columns) -> Learning:
        key = jax.random.key(0)
        _, metrics = jax.eval_shape(lambda state: call(columns, key, state, jnp.zeros((), jnp.uint32)), learner)
        none: Any = {name: np.zeros(m.shape, m.dtype) for name, m in metrics.items()}
        return Learning(learner, none)

    return OfflineDriver(begin, Program(advance, description, donate_argnums=0))


def drawn(columns: Columns, key: Any, size: int) -> Batch:
    """Transitions of a dataset, drawn uniformly with replacement."""
    count = columns.places.shape[0]
    rows = (jax.random.bits(key, (size,)) % np.uint32(count)).astype(jnp.int32)
    places = taken(columns.places, rows)
    return {
        "obs": jax.tree.map(lambda leaf: taken(leaf, places), columns.observations),
        "next_obs": jax.tree.map(lambda leaf: taken(leaf, places + 1), columns.observations),
        **{name: taken(column, rows) for name, column in columns.rows.items()},
    }


def taken(array: Any, index: Any) -> Any:
    return array.at[index].get(mode="promise_in_bounds")


def on_device(observations: Any, places: Array, rows: dict[str, Array]) -> Columns:
    """Columns of a dataset on the device; indices in 32 bits."""
    if len(places) >= 2**31 - 1:
        raise ValueError("a compiled run takes datasets of fewer than 2^31 rows")
    columns = Columns(jax.tree.map(np.asarray, observations), places.astype(np.int32), rows)
    placed: Columns = jax.device_put(columns)
    return placed
