"""A sum tree over non-negative float64 weights, every operation vectorised over a batch.

Each level holds the pairwise sums of the one below it; the highest has at most 1024 nodes and is searched as one
cumulative sum. Sums are always recomputed from the two children, never adjusted by differences, so rounding errors do
not accumulate, and a tree filled at once equals one that was changed weight by weight, bit for bit.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from rl_training.types import Array

TOP = 1024
"""Maximum number of nodes of the highest level: a cumulative sum over them costs as much as two levels of descent."""
BYTES_PER_WEIGHT = 16
"""The weight itself, and its share of the sums above it."""


class SumTree:
    """Weights by index, their total, and the inverse of their cumulative sum."""

    def __init__(self, size: int) -> None:
        self.levels: list[Array] = [np.zeros(size + size % 2)]
        while len(self.levels[-1]) > TOP:
            nodes = len(self.levels[-1]) // 2
            self.levels.append(np.zeros(nodes + nodes % 2))
        self._edges: Array | None = None

    @property
    def weights(self) -> Array:
        """All weights, read-only; padded with one 0 where their number is odd."""
        return self.levels[0]

    @property
    def edges(self) -> Array:
        """Cumulative sums of the highest level: 0, ..., the total. Computed lazily."""
        if self._edges is None:
            self._edges = np.zeros(len(self.levels[-1]) + 1)
            np.cumsum(self.levels[-1], out=self._edges[1:])
        return self._edges

    @property
    def total(self) -> float:
        return float(self.edges[-1])

    def set(self, indices: Array, weights: Array) -> None:
        """Set weights; where an index occurs twice, the last weight counts."""
        self._edges = None
        self.levels[0][indices] = weights
        for below, above in pairwise(self.levels):
            indices = indices >> 1
            if len(indices) > TOP:
                indices = np.unique(indices)
            left = indices + indices
            above[indices] = below.take(left) + below.take(left + 1)

    def fill(self, weights: Array) -> None:
        """Set the first weights and clear all others."""
        self._edges = None
        self.levels[0][: len(weights)], self.levels[0][len(weights) :] = weights, 0.0
        for below, above in pairwise(self.levels):
            above[: len(below) // 2] = below[0::2] + below[1::2]

    def find(self, points: Array) -> Array:
        """The index each point (B,) falls on when the weights are laid end to end from 0. The total must be above 0.

        An index of weight 0 is never found: not at its edges, and not where a point lies at the total or beyond it.
        """
        points = np.minimum(points, math.nextafter(self.total, 0.0))
        nodes = self.edges[1:].searchsorted(points, side="right")
        points -= self.edges.take(nodes)
        found = self._descend(nodes, points)
        weights = self.levels[0].take(found)
        if weights.min() == 0.0:  # rounding put the point at the end of its branch, or beyond it
            empty = weights == 0.0
            found[empty] = self._descend(nodes[empty], points[empty], careful=True)
        return found

    def _descend(self, nodes: Array, points: Array, *, careful: bool = False) -> Array:
        """Descend from nodes of the highest level to the weights; `careful` never enters a branch of weight 0."""
        nodes, points = nodes.copy(), points.copy()
        for level in self.levels[-2::-1]:
            nodes += nodes
            left = level.take(nodes)
            right = points >= left
            if careful:
                right &= level.take(nodes + 1) > 0.0
            left *= right
            points -= left
            nodes += right
        return nodes
