"""Lambda-returns with a discount per row, and the scale of returns, in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.jax.numerics.return_scale import return_scale
from rl_training.jax.numerics.returns import lambda_return
from rl_training.numerics.return_scale import ReturnScale

# NumPy: an array of JAX would start XLA when the tests are collected
REWARDS, VALUES = (np.array(row, np.float32) for row in ([1, 0, 2, 1], [1, 2, 1, 3]))
NEVER = np.zeros(4, bool)


@pytest.mark.parametrize(
    ("discounts", "ends", "expected"),
    [
        ((0.9, 0.9, 0.9, 0.9), NEVER, (4.9294937125, 4.5432675, 5.2085, 3.7)),
        ((0.9, 0.0, 0.9, 0.9), NEVER, (1.045, 0.0, 5.2085, 3.7)),
        ((0.9, 0.9, 0.9, 0.9), np.array([False, True, False, False]), (2.584, 1.8, 5.2085, 3.7)),
    ],
    ids=["live", "terminal", "time limit"],
)
def test_lambda_returns_with_a_discount_per_row(
    discounts: tuple[float, ...], ends: np.ndarray, expected: tuple[float, ...]
) -> None:
    rewards, values, terminated, ended = (jnp.asarray(row) for row in (REWARDS, VALUES, NEVER, ends))
    found = lambda_return(rewards, values, terminated, ended, gamma=jnp.array(discounts), gae_lambda=0.95)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_the_scale_of_returns() -> None:
    returns, averages = jnp.arange(101) / 10.0, jnp.zeros(2)
    step = jax.jit(return_scale)
    found = {}
    for update in range(1, 301):
        averages, found[update] = step(averages, returns)
        if update == 3:
            np.testing.assert_allclose(averages, [0.0148505, 0.2821595], rtol=1e-5)
    assert found[3] == 1.0
    assert float(found[300]) == pytest.approx(8.558631953358429, rel=1e-5)
    assert float(found[50]) == pytest.approx(3.554945395762173, rel=1e-5)
    assert float(found[100]) == pytest.approx(5.705708928540938, rel=1e-5)


def test_the_scale_corrected_for_its_start() -> None:
    twin, averages, step = ReturnScale(debias=True), jnp.zeros(2), jax.jit(return_scale)
    for update in range(1, 5):
        returns = np.random.default_rng(update).normal(0.0, 5.0, 200).astype(np.float32)
        averages, scale = step(averages, returns, updates=float(update))
        assert float(scale) == pytest.approx(twin.update(returns), rel=1e-5)
    lowest = return_scale(jnp.zeros(2), jnp.arange(4.0), rate=1.0)[0]
    np.testing.assert_allclose(lowest, [0.15, 2.85], rtol=1e-6)
