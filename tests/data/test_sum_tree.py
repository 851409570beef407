"""The sum tree: finds what a cumulative sum finds, never a weight of 0, and does not drift."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.data.sum_tree import SumTree


def tree_of(weights: np.ndarray) -> SumTree:
    tree = SumTree(len(weights))
    tree.fill(weights)
    return tree


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1024, 1025, 5001, 40_000])
def test_it_finds_what_a_cumulative_sum_finds(size: int) -> None:
    rng = np.random.default_rng(size)
    weights = rng.integers(0, 5, size).astype(float)  # whole numbers: every sum is exact, so every edge is too
    weights[size // 2] = 3.0
    tree = tree_of(weights)
    assert tree.total == weights.sum()
    points = np.arange(0.0, weights.sum(), 0.5)
    np.testing.assert_array_equal(tree.find(points), np.cumsum(weights).searchsorted(points, side="right"))


@pytest.mark.parametrize("size", [4, 3000])
def test_a_weight_of_zero_is_never_found(size: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        weights = np.where(rng.random(size) < 0.4, rng.random(size) * 10.0 ** rng.integers(-12, 12, size), 0.0)
        weights[rng.integers(size)] = 1.0
        tree = tree_of(weights)
        edges = np.cumsum(weights)
        inside = rng.random(50) * tree.total
        points = np.concatenate([edges, np.nextafter(edges, 0.0), inside, [0.0, tree.total, 2 * tree.total]])
        assert (weights[tree.find(points)] > 0.0).all()


def test_a_point_that_rounding_pushes_out_of_its_branch_falls_on_a_positive_weight() -> None:
    """3.5 + (2^52 + 2) is rounded up to 2^52 + 6, and the point below that, less 3.5, up to the whole second branch."""
    weights = np.zeros(4096)
    weights[[0, 2]] = [3.5, 2.0**52 + 2]
    point = 2.0**52 + 5
    assert point < 3.5 + weights[2]
    assert point - 3.5 == weights[2]
    tree = tree_of(weights)
    assert tree._descend(np.zeros(1, int), np.array([point])).tolist() == [3]
    assert tree.find(np.array([point, 3.0, point])).tolist() == [2, 0, 2]


def test_weights_set_one_by_one_and_all_at_once_are_the_same_tree() -> None:
    rng = np.random.default_rng(1)
    weights = rng.random(5000)
    slowly = SumTree(5000)
    for _ in range(300):
        indices = rng.integers(5000, size=64)
        slowly.set(indices, weights[indices])
    slowly.set(np.arange(5000), weights)
    quickly = tree_of(weights)
    for one, other in zip(slowly.levels, quickly.levels, strict=True):
        assert one.tobytes() == other.tobytes()


def test_the_last_of_equal_indices_counts() -> None:
    tree = SumTree(3)
    tree.set(np.array([1, 1, 2]), np.array([5.0, 7.0, 1.0]))
    assert tree.weights[:3].tolist() == [0.0, 7.0, 1.0]
    assert tree.total == 8.0


def test_a_million_updates_do_not_drift() -> None:
    rng = np.random.default_rng(2)
    tree = SumTree(10_000)
    for _ in range(1000):
        tree.set(rng.integers(10_000, size=1000), rng.random(1000) * 10.0 ** rng.integers(-6, 6))
    exact = float(np.sum(tree.weights.astype(np.longdouble)))
    assert abs(tree.total - exact) <= 1e-12 * exact
