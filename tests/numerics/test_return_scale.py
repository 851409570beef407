"""The scale of imagined returns against worked-out numbers."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.numerics.return_scale import ReturnScale

RETURNS = np.arange(101) / 10.0  # 0, 0.1, ..., 10: percentiles 0.5 and 9.5


def test_averages_start_at_zero_and_the_scale_at_its_floor() -> None:
    scale = ReturnScale()
    expected = [(0.005, 0.095), (0.00995, 0.18905), (0.0148505, 0.2821595)]
    for low, high in expected:
        assert scale.update(RETURNS) == 1.0
        assert (scale.low, scale.high) == pytest.approx((low, high), abs=1e-12)


def test_the_scale_after_many_updates() -> None:
    scale, found = ReturnScale(), {}
    for update in range(1, 301):
        found[update] = scale.update(RETURNS)
    assert found[50] == pytest.approx(3.554945395762173, abs=1e-10)
    assert found[100] == pytest.approx(5.705708928540938, abs=1e-10)
    assert found[300] == pytest.approx(8.558631953358429, abs=1e-10)


def test_percentiles_are_interpolated() -> None:
    scale = ReturnScale(rate=1.0)
    scale.update([0.0, 1.0, 2.0, 3.0])
    assert (scale.low, scale.high) == pytest.approx((0.15, 2.85), abs=1e-12)


def test_debiased_the_first_update_has_the_whole_range() -> None:
    assert ReturnScale(debias=True).update(RETURNS) == pytest.approx(9.0, abs=1e-9)


def test_state_goes_on_exactly() -> None:
    scale, other = ReturnScale(debias=True), ReturnScale(debias=True)
    for _ in range(7):
        scale.update(RETURNS)
    other.load_state_dict(scale.state_dict())
    assert other.update(2.0 * RETURNS) == scale.update(2.0 * RETURNS)
