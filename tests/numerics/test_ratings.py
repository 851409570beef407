"""Numbers of a league, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.numerics.ratings import draw_chances, elo_change, expected_score, wilson_interval


def test_elo() -> None:
    assert expected_score(1400, 1000) == pytest.approx(10 / 11)
    assert elo_change(1400, 1000, 0.0) == pytest.approx(-16 * 10 / 11)
    assert elo_change(1400, 1000, 1.0) == pytest.approx(16 / 11)
    assert elo_change(1000, 1000, 0.5) == 0.0


def test_draws_prefer_those_that_win() -> None:
    np.testing.assert_allclose(draw_chances([0.0, 0.5], 2.0), [0.8, 0.2])
    np.testing.assert_allclose(draw_chances([0.1, 0.9, 0.5], 0.0), [1 / 3] * 3)
    np.testing.assert_allclose(draw_chances([1.0, 1.0], 2.0), [0.5, 0.5])  # all beaten: all alike, nobody forgotten


def test_wilson_interval() -> None:
    assert wilson_interval(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    low, high = wilson_interval(0, 10)
    assert low == 0.0
    assert high == pytest.approx(0.2775, abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)
