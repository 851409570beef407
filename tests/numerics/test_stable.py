"""Numerical stability in the tails, and correct distributions."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from rl_training.numerics import stable as numerics
from rl_training.numerics.stable import gumbel, iqm, log_softmax, log_tanh_derivative, tanh_logprob


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(numerics).failed == 0


def test_log_softmax_is_normalised_and_does_not_overflow() -> None:
    result = log_softmax(np.array([[1e4, 1e4, -1e4], [0.0, np.log(3.0), -np.inf]]))
    np.testing.assert_allclose(np.exp(result), [[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]], atol=1e-12)
    assert log_softmax(np.zeros((2, 3), np.float32)).dtype == np.float32


def test_gumbel_argmax_draws_from_the_softmax() -> None:
    probabilities = np.array([0.1, 0.2, 0.7])
    draws = (np.log(probabilities) + gumbel(np.random.default_rng(0), (100_000, 3))).argmax(axis=1)
    observed = np.bincount(draws, minlength=3)
    expected = probabilities * len(draws)
    chi_square = ((observed - expected) ** 2 / expected).sum()
    assert chi_square < 13.8  # 0.1% point with 2 degrees of freedom


def test_tanh_logprob_is_exact_where_the_naive_form_is_off_by_five() -> None:
    np.testing.assert_allclose(tanh_logprob([1.0, 10.0]), [-0.551377, -32.305233], atol=1e-6)
    naive = -0.5 * 100.0 - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(10.0) ** 2 + 1e-6)
    assert naive == pytest.approx(-37.1, abs=0.05)


def test_tanh_logprob_integrates_to_one() -> None:
    x = np.linspace(-12, 12, 200_001)
    density = np.exp(tanh_logprob(x, mean=0.3, log_std=-0.5))
    actions = np.tanh(x)
    assert np.trapezoid(density, actions) == pytest.approx(1.0, abs=1e-6)


def test_log_tanh_derivative_is_even_and_finite() -> None:
    x = np.array([0.0, 0.5, 3.0, 400.0])
    np.testing.assert_allclose(log_tanh_derivative(x), log_tanh_derivative(-x), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_tanh_derivative(x[:3]), np.log(1 - np.tanh(x[:3]) ** 2), atol=1e-12)
    assert log_tanh_derivative(400.0) == pytest.approx(2 * np.log(2) - 800)


def test_iqm_drops_a_quarter_at_each_end() -> None:
    assert iqm([0, 3, 4, 5, 6, 7, 8, 1000]) == 5.5
    assert iqm([4]) == 4.0
    assert iqm([1, 2, 3]) == 2.0
    assert iqm(np.arange(10)) == 4.5
    with pytest.raises(ValueError, match="no values"):
        iqm([])
