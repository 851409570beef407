"""Symlog and the bins of two-hot predictions against worked-out numbers."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.numerics.symlog import symexp, symexp_bins, symlog


def test_symlog_against_worked_out_numbers() -> None:
    expected = [-6.908754779315, -0.693147180560, 0.405465108108, 2.397895272798, 6.908754779315]
    np.testing.assert_allclose(symlog([-1000.0, -1.0, 0.5, 10.0, 1000.0]), expected, rtol=0, atol=1e-12)
    assert symlog(np.e - 1.0) == pytest.approx(1.0, abs=1e-15)


def test_symexp_against_worked_out_numbers() -> None:
    expected = [-6.389056098931, 0.648721270700, 19.085536923188, 485165194.4097903]
    np.testing.assert_allclose(symexp([-2.0, 0.5, 3.0, 20.0]), expected, rtol=1e-12)
    values = np.linspace(-30.0, 30.0, 101)
    np.testing.assert_allclose(symlog(symexp(values)), values, rtol=1e-13)


def test_bins_are_antisymmetric_to_the_last_bit() -> None:
    bins = symexp_bins(255)
    assert bins[0] == pytest.approx(-485165194.4097903, rel=1e-15)
    assert bins[127] == 0.0
    np.testing.assert_allclose(bins[126:130], [-0.1705577153, 0.0, 0.1705577153, 0.3702053648], atol=1e-10)
    assert (bins == -bins[::-1]).all()
    assert (np.diff(bins) > 0).all()


@pytest.mark.parametrize("count", [2, 5, 62, 63])
def test_any_number_of_bins(count: int) -> None:
    bins = symexp_bins(count)
    assert len(bins) == count
    assert (bins == -bins[::-1]).all()


def test_one_bin_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 bins"):
        symexp_bins(1)
