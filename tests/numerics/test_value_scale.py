"""The scale of returns: unbiased from the first rollout on, and slowly moving."""

from __future__ import annotations

import numpy as np

from rl_training.numerics.value_scale import DECAY, SMALLEST_STD, ValueScale


def test_before_any_data_values_stand_for_themselves() -> None:
    assert (ValueScale().mean, ValueScale().std) == (0.0, 1.0)


def test_the_first_rollout_sets_it_and_later_ones_move_it() -> None:
    scale = ValueScale()
    scale.update(np.array([1.0, 3.0]))
    np.testing.assert_allclose((scale.mean, scale.std), (2.0, 1.0))
    scale.update(np.array([5.0, 5.0]))
    weights = np.array([DECAY, 1.0])
    mean = (weights * [2.0, 5.0]).sum() / weights.sum()
    second = (weights * [5.0, 25.0]).sum() / weights.sum()
    np.testing.assert_allclose((scale.mean, scale.std), (mean, np.sqrt(second - mean**2)))


def test_equal_returns_are_not_blown_up_and_the_state_goes_there_and_back() -> None:
    scale, other = ValueScale(), ValueScale()
    scale.update(np.full(9, 4.0))
    assert scale.std == SMALLEST_STD
    scale.update(np.zeros(0))
    other.load_state_dict(scale.state_dict())
    assert (other.mean, other.std) == (scale.mean, scale.std) == (4.0, SMALLEST_STD)
