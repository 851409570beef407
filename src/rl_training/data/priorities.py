"""Prioritised sampling (Schaul et al. 2016, arXiv:1511.05952), an option of every replay buffer.

P(i) = p_i^alpha / sum p^alpha, sampled from equal strata of the sum; importance-sampling weights (N P(i))^-beta,
divided by the largest of the batch. New rows get the largest priority seen so far, initially 1, or the one that came
with them. Insertion is lazy: new rows enter the tree together, when the next batch is sampled. Priorities are set by
row number, which counts all rows ever stored: a row that was overwritten since is never mistaken for its successor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rl_training.data.sum_tree import SumTree
from rl_training.types import Array, CheckpointError, ConfigError, StateDict

CHUNK = 2**10
"""New rows inserted into the tree at a time; bounds the temporary memory."""


class Drawable(NamedTuple):
    """Which rows of a ring can be sampled, by row number: [start, stop) and those in `early`.

    Rows from `stop` on do not have all n steps yet and cannot be sampled, except those in `early`, whose episode ended
    sooner. `written` is the number of rows ever stored.
    """

    start: int
    stop: int
    early: Array
    written: int


class Priorities:
    """The priorities of a ring's rows. `alpha` and `beta` may be changed at any time, for instance by a schedule: beta
    applies to batches sampled from then on, alpha to priorities set from then on."""

    def __init__(self, alpha: float = 0.6, beta: float = 0.4) -> None:
        if not (alpha >= 0.0 and beta >= 0.0):
            raise ConfigError(f"alpha and beta of prioritised replay must be 0 or more, not {alpha} and {beta}")
        self.alpha = alpha
        self.beta = beta
        self.max_priority = 1.0
        """The largest priority seen so far."""
        self.attach(1)

    def attach(self, capacity: int) -> None:
        """Start over for an empty ring of `capacity` rows."""
        self.capacity = capacity
        self.tree = SumTree(capacity)
        self._first: Array | None = None
        self._settled = Drawable(0, 0, np.empty(0, np.int64), 0)

    def anneal(self, beta: float) -> None:
        """Set the importance-sampling exponent of the batches drawn from now on."""
        self.beta = beta

    def announce(self, rows: Array, priorities: Array) -> None:
        """Priorities with which new rows, by number, will enter; NaN leaves a row the largest one."""
        if self._first is None:
            self._first = np.full(self.capacity, np.nan)
        self._first[rows % self.capacity] = priorities

    def follow(self, drawable: Drawable, skipped: Array | None) -> None:
        """Update the weights for rows added or dropped since the last call; `skipped` marks rows without transition."""
        before, self._settled = self._settled, drawable
        if drawable.written == before.written and drawable.start == before.start:
            return
        oldest = drawable.written - self.capacity
        if drawable.start > max(before.start, oldest):  # dropped before they were overwritten
            gone = np.arange(max(before.start, oldest), drawable.start)
            self.tree.set(gone % self.capacity, np.zeros(len(gone)))
        for first in range(max(before.stop, oldest, drawable.start), drawable.written, CHUNK):
            self._enter(np.arange(first, min(first + CHUNK, drawable.written)), before.early, skipped)

    def _enter(self, rows: Array, already: Array, skipped: Array | None) -> None:
        """Give new rows the largest priority if they can be sampled; rows `already` in the tree keep theirs."""
        if len(already):
            rows = rows[~np.isin(rows, already)]
        ready = rows < self._settled.stop
        if len(self._settled.early):
            ready |= np.isin(rows, self._settled.early)
        index = rows % self.capacity
        if skipped is not None:
            ready &= ~skipped.take(index)
        entering: float | Array = self.max_priority**self.alpha
        if self._first is not None:
            announced = self._first[index]
            entering = np.where(np.isnan(announced), entering, announced**self.alpha)
        self.tree.set(index, np.where(ready, entering, 0.0))

    def draw(self, batch_size: int, rng: np.random.Generator) -> Array:
        """Ring indices of `batch_size` rows, one from each equal part of the total weight."""
        total = self.tree.total
        if not total > 0.0:
            raise ValueError("every priority in the replay buffer is 0: nothing can be sampled")
        return self.tree.find((np.arange(batch_size) + rng.random(batch_size)) * (total / batch_size))

    def importance(self, index: Array, beta: float | None = None) -> Array:
        """Importance-sampling weights of sampled rows, scaled so that the largest is 1."""
        weights = self.tree.weights.take(index)
        scaled: Array = (weights.min() / weights) ** (self.beta if beta is None else beta)
        return scaled.astype(np.float32)

    def update(self, rows: Array, priorities: Array) -> None:
        """Set new priorities for sampled rows; rows that were overwritten since are ignored."""
        rows, values = np.asarray(rows, np.int64).reshape(-1), np.asarray(priorities, np.float64).reshape(-1)
        if len(rows) != len(values):
            raise ValueError(f"{len(values)} priorities for {len(rows)} rows")
        valid = np.isfinite(values) & (values >= 0.0)
        if not valid.all():
            bad = int(np.argmin(valid))
            raise ValueError(f"a priority must be finite and not negative, not {values[bad]} (row {rows[bad]})")
        waiting = rows >= self._settled.stop
        if waiting.any() and not np.isin(rows[waiting], self._settled.early).all():
            raise ValueError("only rows that were sampled can be given a priority: pass the `indices` of a batch")
        alive = rows >= self._settled.start
        if not alive.all():
            rows, values = rows[alive], values[alive]
        if len(rows):
            self.max_priority = max(self.max_priority, float(values.max()))
            self.tree.set(rows % self.capacity, np.where(values > 0.0, values**self.alpha, 0.0))

    def state_dict(self, size: int) -> StateDict:
        """The state for a ring whose first `size` rows are in use; call `follow` first. `weights` is a view."""
        scalars = {"max_priority": self.max_priority, "alpha": self.alpha, "beta": self.beta}
        return {"weights": self.tree.weights[:size], **scalars}

    def load_state_dict(self, state: StateDict, drawable: Drawable) -> None:
        weights = np.asarray(state["weights"])
        if weights.dtype != np.float64 or weights.ndim != 1 or len(weights) > self.capacity:
            raise CheckpointError(f"the saved priorities ({weights.dtype}{list(weights.shape)}) do not fit this buffer")
        self.tree.fill(weights)
        self.max_priority = float(state["max_priority"])
        self.alpha, self.beta = float(state["alpha"]), float(state["beta"])
        self._settled = drawable
