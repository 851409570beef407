"""Layouts from spaces, and the memory check."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.data.storage import allocate, fit_capacity, layout, row_bytes
from rl_training.system.memory_limits import Room
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec

IMAGE = BoxSpec(np.zeros((8, 8), np.uint8), np.full((8, 8), 255, np.uint8), np.dtype(np.uint8))


def test_layout_of_spaces() -> None:
    assert layout(IMAGE) == ((8, 8), np.uint8)
    assert layout(DictSpec({"image": IMAGE, "room": DiscreteSpec(3)})) == (
        {"image": (8, 8), "room": ()},
        {"image": np.uint8, "room": np.int64},
    )
    assert row_bytes(*layout(DictSpec({"image": IMAGE, "room": DiscreteSpec(3)}))) == 64 + 8


def test_allocate_one_dtype_for_all_or_one_each() -> None:
    tree = allocate((2, 3), {"a": 4, "b": ()}, np.float16)
    assert tree["a"].shape == (2, 3, 4)
    assert tree["b"].shape == (2, 3)
    assert tree["a"].dtype == tree["b"].dtype == np.float16


def test_a_buffer_that_cannot_fit_is_refused_with_the_numbers_or_shrunk() -> None:
    available = Room(1000, "the limit of a test")
    assert fit_capacity(9, 100, on_memory="refuse", available=available) == 9
    with pytest.raises(ConfigError, match=r"buffer of 10 transitions x 100 bytes.*\(the limit of a test\).*at most 9"):
        fit_capacity(10, 100, on_memory="refuse", available=available)
    with pytest.warns(UserWarning, match=r"holds 9 transitions instead of 10: .* \(the limit of a test\)"):
        assert fit_capacity(10, 100, on_memory="shrink", available=available) == 9
    with pytest.raises(ConfigError, match="at most 0"):
        fit_capacity(10, 10_000, on_memory="shrink", available=available)
