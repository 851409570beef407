"""A sum tree over non-negative float64 weights, every operation vectorised over a batch.

A node has eight children and keeps their running sums, so that a step down is one comparison of a row; three steps
lead from the running sums over all nodes of the highest level to one weight of a million. A wide, shallow tree needs
few NumPy calls, which is what costs here. Sums are always taken anew from the weights, one after the other, never
adjusted by differences: no error builds up, and a tree filled at once equals one changed weight by weight, bit for bit.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rl_training.types import Array

FANOUT = 8
TOP = 2048
"""Nodes of the highest level, at most; they are searched as one sorted array."""
BYTES_PER_WEIGHT = 19
"""A weight and a running sum, and their share of those above: 16 * 8 / 7."""


class SumTree:
    """Weights by index, their total, and which index a point between 0 and the total falls on."""

    def __init__(self, size: int) -> None:
        self._weights: list[Array] = []
        self._sums: list[Array] = []
        nodes = size
        while not self._weights or nodes > TOP:
            nodes = -(-nodes // FANOUT)
            self._weights.append(np.zeros((nodes, FANOUT)))
            self._sums.append(np.zeros((nodes, FANOUT)))
        self._edges: Array = np.zeros(nodes + 1)
        """Where the nodes of the highest level begin and end."""

    @property
    def weights(self) -> Array:
        """All weights, to be read; there may be some more than indices, which are 0."""
        return self._weights[0].reshape(-1)

    @property
    def total(self) -> float:
        return float(self._edges[-1])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self._weights, *self._sums, self._edges))

    def set(self, indices: Array, weights: Array) -> None:
        """Give these indices these weights; where an index stands twice, the last weight counts."""
        for level, sums in zip(self._weights, self._sums, strict=True):
            level.reshape(-1)[indices] = weights
            indices = indices // FANOUT
            if len(indices) > TOP:
                indices = np.unique(indices)
            rows = _running(level.take(indices, axis=0))
            sums[indices] = rows
            weights = rows[:, -1]
        np.cumsum(self._sums[-1][:, -1], out=self._edges[1:])

    def fill(self, weights: Array) -> None:
        """Give the first indices these weights and all others none."""
        for level, sums in zip(self._weights, self._sums, strict=True):
            flat = level.reshape(-1)
            flat[: len(weights)], flat[len(weights) :] = weights, 0.0
            sums[:] = level
            weights = _running(sums)[:, -1]
        np.cumsum(weights, out=self._edges[1:])

    def find(self, points: Array) -> Array:
        """The index each point (B,) falls on when the weights are laid end to end from 0. The total must be above 0.

        An index of weight 0 is never found: not at its edges, and not where a point lies at the total or beyond it.
        """
        points = np.minimum(points, np.nextafter(self._edges[-1], 0.0))
        nodes = self._edges[1:].searchsorted(points, side="right")
        points = points - self._edges.take(nodes)
        found = self._descend(nodes, points)
        empty = self.weights.take(found) == 0.0
        if empty.any():  # rounding has put the point at the end of its branch, or behind it
            found[empty] = self._descend(nodes[empty], points[empty], careful=True)
        return found

    def _descend(self, nodes: Array, points: Array, *, careful: bool = False) -> Array:
        """From nodes of the highest level to the weights; `careful` keeps every point in front of its branch's end."""
        starts = np.arange(0, len(nodes) * FANOUT, FANOUT)
        for sums in reversed(self._sums):
            rows = sums.take(nodes, axis=0)
            if careful:
                points = np.minimum(points, np.nextafter(rows[:, -1], 0.0))
            children = (rows > points[:, None]).argmax(axis=1)
            before = rows.take(starts + children - 1)
            before *= children > 0
            points = points - before
            nodes = nodes * FANOUT + children
        return nodes


def _running(rows: Array) -> Array:
    """The running sums of each row, in place. A loop over eight columns is quicker than cumsum over short rows."""
    columns = rows.T
    for one, following in pairwise(columns):
        following += one
    return rows
