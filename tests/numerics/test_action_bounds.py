"""Actions for an environment are always within its bounds and in its dtype, whatever the bounds are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rl_training.algorithms.constant import middle
from rl_training.algorithms.off_policy import UniformPolicy
from rl_training.algorithms.random import random_box
from rl_training.envs.spaces import space_spec
from rl_training.numerics.encoding import in_dtype, to_bounds, to_env
from rl_training.types import BoxSpec

ROWS = 32


def boxes(count: int = 60) -> Iterator[spaces.Box]:
    """Bounds that are symmetric and not, tiny, huge, far from 0, as wide as the dtype, in three dtypes."""
    rng = np.random.default_rng(7)
    for dtype in (np.float16, np.float32, np.float64):
        largest = float(np.finfo(dtype).max)
        yield from (spaces.Box(-bound, bound, (2,), dtype) for bound in (1.0, 0.1, 0.7, largest))
        yield spaces.Box(np.array([-0.7, 0.0], dtype), np.array([0.1, largest], dtype), dtype=dtype)
        for _ in range(count):
            middles = rng.normal(size=3) * 10.0 ** rng.uniform(-4, 3, 3)
            widths = 10.0 ** rng.uniform(-4, 3, 3)
            low, high = (middles + sign * widths for sign in (-1.0, 1.0))
            yield spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def unit_actions(rng: np.random.Generator, space: BoxSpec) -> Any:
    """Actions in -1..1, the bounds themselves and their neighbours often."""
    actions = rng.uniform(-1, 1, (ROWS, *space.shape)).astype(np.float32)
    edges = np.array([-1.0, 1.0, np.nextafter(np.float32(1.0), 0), np.nextafter(np.float32(-1.0), 0)], np.float32)
    return np.where(rng.random(actions.shape) < 0.5, rng.choice(edges, actions.shape), actions)


def check(space: spaces.Box, actions: Any) -> None:
    assert actions.dtype == space.dtype
    assert all(space.contains(action) for action in actions), space


def test_rescaled_actions_lie_within_the_bounds() -> None:
    rng = np.random.default_rng(1)
    for space in boxes():
        spec = space_spec(space)
        assert isinstance(spec, BoxSpec)
        check(space, to_bounds(spec, unit_actions(rng, spec)))
        ends = to_bounds(spec, np.array([-np.ones(spec.shape), np.ones(spec.shape)], np.float32))
        width = np.abs(space.high.astype(np.longdouble) - space.low) + np.abs(space.high) + np.abs(space.low)
        eps = max(np.finfo(space.dtype).eps, np.finfo(np.float32).eps)
        errors = np.abs(ends - np.stack([space.low, space.high]).astype(np.longdouble))
        assert (errors <= eps * width).all()


def test_a_rounding_that_left_the_bounds() -> None:
    box = spaces.Box(np.float32(-0.7), np.float32(0.1), (1,), np.float32)
    spec = space_spec(box)
    assert isinstance(spec, BoxSpec)
    assert to_bounds(spec, np.ones((1, 1), np.float32)).tolist() == [[float(np.float32(0.1))]]  # was 0.10000002


def test_bounds_farther_apart_than_the_dtype_reaches() -> None:
    largest = np.finfo(np.float32).max
    spec = BoxSpec(np.array([-largest]), np.array([largest]), np.dtype(np.float32))
    found = to_bounds(spec, np.array([[-1.0], [-0.5], [0.0], [0.5], [1.0]], np.float32))
    assert (found / largest).ravel().tolist() == pytest.approx([-1.0, -0.5, 0.0, 0.5, 1.0])


def test_clipped_random_and_constant_actions_lie_within_the_bounds() -> None:
    rng = np.random.default_rng(2)
    for space in boxes():
        spec = space_spec(space)
        assert isinstance(spec, BoxSpec)
        for dtype in (np.float32, np.float64):
            gaussian = (rng.normal(size=(ROWS, *spec.shape)) * 10.0 ** rng.uniform(-3, 4)).astype(dtype)
            check(space, to_env(spec, gaussian))
        check(space, random_box(spec, ROWS, rng))
        check(space, middle(spec)[None])
        warmup = UniformPolicy(spec).act(np.zeros((ROWS, 1)), {}, np.ones(ROWS, bool), rng)
        check(space, warmup.env_actions)
        assert np.abs(warmup.actions).max() <= 1.0  # what is stored


def test_half_open_bounds() -> None:
    spec = BoxSpec(np.array([0.1, -np.inf]), np.array([np.inf, 0.3]), np.dtype(np.float64))
    actions = random_box(spec, 1000, np.random.default_rng(3))
    assert (actions[:, 0] >= 0.1).all()
    assert (actions[:, 1] <= 0.3).all()
    assert to_env(spec, np.float32([[0.1, 0.3]])).tolist() == [[float(np.float32(0.1)), 0.3]]


@pytest.mark.parametrize("bound", [0.1, 0.7, 1e-3, 1e300])
def test_bounds_in_a_narrower_dtype_are_rounded_inwards(bound: float) -> None:
    wide = BoxSpec(np.array([-bound]), np.array([bound]), np.dtype(np.float64))
    narrow = in_dtype(wide, np.dtype(np.float32))
    assert -bound <= float(narrow.low[0]) < float(narrow.high[0]) <= bound
    assert np.isfinite([*narrow.low, *narrow.high]).all()
    assert in_dtype(narrow, np.dtype(np.float32)) is narrow


def test_no_number_of_the_dtype_between_the_bounds() -> None:
    point = BoxSpec(np.array([0.1]), np.array([0.1]), np.dtype(np.float64))
    narrow = in_dtype(point, np.dtype(np.float32))
    assert narrow.low.tolist() == narrow.high.tolist() == [float(np.float32(0.1))]
