"""`as_batch` takes one observation or a batch that fits the space, and otherwise says what was expected and given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.envs.observations import as_batch
from rl_training.runs.spaces import describe, plain_space, space_of
from rl_training.types import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    ObservationError,
    SpaceSpec,
)

FLOATS = BoxSpec(np.full(2, -np.inf, np.float32), np.full(2, np.inf, np.float32), np.dtype(np.float32))
PICTURE = BoxSpec(np.zeros((2, 2), np.uint8), np.full((2, 2), 255, np.uint8), np.dtype(np.uint8))
BOTH = DictSpec({"x": FLOATS, "goal": DiscreteSpec(3)})


@pytest.mark.parametrize(
    ("space", "given", "rows", "single"),
    [
        (FLOATS, [1, 2], [[1.0, 2.0]], True),
        (FLOATS, np.array([0.5, 1.5]), [[0.5, 1.5]], True),
        (FLOATS, [[1, 2], [3, 4], [5, 6]], [[1, 2], [3, 4], [5, 6]], False),
        (FLOATS, np.array([True, False]), [[1, 0]], True),
        (PICTURE, np.full((2, 2), 7.0), [[[7, 7], [7, 7]]], True),
        (DiscreteSpec(3), 2, [2], True),
        (DiscreteSpec(3), np.float64(2.0), [2], True),
        (DiscreteSpec(3), [0, 2], [0, 2], False),
        (MultiDiscreteSpec((2, 3)), [1, 2], [[1, 2]], True),
        (MultiBinarySpec(2), [True, False], [[1, 0]], True),
    ],
)
def test_numbers_that_fit(space: SpaceSpec, given: Any, rows: Any, single: bool) -> None:
    batch, was_single = as_batch(given, space)
    assert np.array_equal(batch, rows)
    assert was_single == single
    assert not isinstance(batch, dict)
    assert batch.dtype.kind == ("f" if space is FLOATS else np.dtype(space.dtype).kind)  # type: ignore[union-attr]


def test_floats_keep_their_bits() -> None:
    given = np.array([0.1, 0.2], np.float64)
    batch, _ = as_batch(given, FLOATS)
    assert isinstance(batch, np.ndarray)
    assert batch.dtype == np.float64


@pytest.mark.parametrize(
    ("space", "given", "message"),
    [
        (FLOATS, [1, 2, 3], r"of shape \(2,\), or a batch of shape \(n, 2\) .*, got shape \(3,\)"),
        (FLOATS, 1.0, r"got shape \(\)"),
        (FLOATS, np.zeros((1, 1, 2)), r"got shape \(1, 1, 2\)"),
        (FLOATS, np.zeros((0, 2)), r"n at least 1, got shape \(0, 2\)"),
        (FLOATS, ["a", "b"], r"shape \(2,\) and dtype float32, got list \['a', 'b'\] of dtype <U1"),
        (FLOATS, None, "got NoneType None"),
        (FLOATS, [[1, 2], [3]], "got list"),
        (FLOATS, np.array([1j, 0]), "of dtype complex128"),
        (FLOATS, [0.0, float("nan")], r"expected finite numbers in observation, got nan at row 0, \(1,\)"),
        (FLOATS, [[0, 0], [np.inf, 0]], r"got inf at row 1, \(0,\)"),
        (FLOATS, {"x": [1, 2]}, "got a mapping with the keys x"),
        (PICTURE, np.full((2, 2), 0.5), r"whole numbers from 0 to 255 .*, got 0.5"),
        (PICTURE, np.full((2, 2), 300), "got 300"),
        (DiscreteSpec(3), 3, r"whole numbers from 0 to 2 .*, got 3"),
        (DiscreteSpec(3), 0.5, "got 0.5"),
        (MultiDiscreteSpec((2, 3)), [2, 0], "got 2"),
        (BOTH, [1, 2], "expected a mapping with the keys x, goal, got list"),
        (BOTH, {"x": [1, 2]}, "with the keys x, goal, got x"),
        (BOTH, {"x": [1, 2], "goal": 1, "y": 0}, "with the keys x, goal, got x, goal, y"),
        (BOTH, {"x": [1, 2], "goal": [1, 2]}, "'x' one, 'goal' a batch of 2"),
        (BOTH, {"x": [1, 2, 3], "goal": 1}, r"expected observation 'x' of shape \(2,\)"),
    ],
)
def test_what_does_not_fit_is_named(space: SpaceSpec, given: Any, message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        as_batch(given, space)


def test_mappings_nested_or_flat() -> None:
    space = DictSpec({"a/b": FLOATS, "c": DiscreteSpec(2)})
    batch, single = as_batch({"a": {"b": [1, 2]}, "c": 1}, space)
    assert isinstance(batch, dict)
    assert single
    assert (batch["a/b"].tolist(), batch["c"].tolist()) == ([[1, 2]], [1])


@pytest.mark.parametrize(
    "space", [FLOATS, PICTURE, BOTH, DiscreteSpec(4), MultiDiscreteSpec((2, 5)), MultiBinarySpec(3)]
)
def test_spaces_are_the_same_after_writing_and_reading(space: SpaceSpec) -> None:
    assert space_of(plain_space(space)) == space


def test_spaces_in_words() -> None:
    assert describe(BOTH) == "Dict(x: Box(2,) float32, goal: Discrete(3))"
    bounds = BoxSpec(np.array([-1, 0], np.float32), np.array([1, 0.1], np.float32), np.dtype(np.float32))
    assert space_of(plain_space(bounds)) == bounds
