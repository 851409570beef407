"""PPO's fast kernel in JAX against `jax.grad` of `ppo_loss`, row by row, over the whole range of its coefficients."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from rl_training.jax.algorithms.kernels.ppo import Rows, surrogate, value_gradient
from rl_training.jax.algorithms.ppo import Coefficients, ppo_loss

ROWS = 4000


@jax.jit
def by_autodiff(given: dict[str, Any], clip_coef: Any, clip_vf: Any) -> tuple[Any, Any]:
    """Gradients by the log-probabilities and by the values."""

    def loss(logprobs: Any, new_values: Any) -> Any:
        minibatch = {**given, "logprobs": logprobs, "new_values": new_values, "entropy": 0.0 * logprobs}
        return ppo_loss(minibatch, clip_coef=clip_coef, ent_coef=0.0, vf_coef=0.7, clip_vf=clip_vf)["loss"]

    gradients: tuple[Any, Any] = jax.grad(loss, argnums=(0, 1))(given["logprobs"], given["new_values"])
    return gradients


@jax.jit
def by_kernel(given: dict[str, Any], clip_coef: Any, clip_vf: Any) -> tuple[Any, Any]:
    rows = Rows(None, None, given["old_logprobs"], given["advantages"], given["returns"], given["values"])
    coefficients = Coefficients(clip_coef, 0.0, 0.7, clip_vf)
    by_values, _ = value_gradient(given["new_values"], rows, coefficients)
    return surrogate(given["logprobs"], rows, clip_coef)[0], by_values


def minibatch(scale: float, advantages: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    old = -rng.exponential(size=ROWS)
    values = rng.normal(0.0, 3.0, (3, ROWS))
    given = {"logprobs": old + rng.normal(0.0, scale, ROWS), "old_logprobs": old, "advantages": advantages}
    columns = {**given, "values": values[0], "new_values": values[1], "returns": values[2]}
    return {name: np.asarray(column, np.float32) for name, column in columns.items()}


@pytest.mark.parametrize("clip_coef", [1e-4, 0.01, 0.2, 0.5, 0.6, 0.9, 1.0, 3.0, 10.0])
def test_every_row_has_its_gradient(clip_coef: float) -> None:
    rng = np.random.default_rng(2)
    for scale in (1e-4, 0.3, 1.0, 5.0, 30.0):
        for advantages in (rng.normal(size=ROWS), np.zeros(ROWS), 1e10 * rng.normal(size=ROWS)):
            given = minibatch(scale, advantages)
            for clip_vf in (1e-6, 0.2, 1e9):
                numbers = np.float32(clip_coef), np.float32(clip_vf)
                pairs = zip(by_kernel(given, *numbers), by_autodiff(given, *numbers), strict=True)
                ratio = np.exp((given["logprobs"] - given["old_logprobs"]).astype(np.float64))
                edges = np.minimum(np.abs(ratio - (1 - clip_coef)), np.abs(ratio - (1 + clip_coef)))
                far = (edges > 1e-6 * np.maximum(ratio, 1.0)) & (ratio * np.abs(advantages) < 1e38)
                for found, expected in pairs:
                    found, expected = np.asarray(found), np.asarray(expected)
                    sure = far & np.isfinite(expected)
                    assert sure.mean() > 0.5
                    largest = float(np.abs(expected[sure]).max())
                    np.testing.assert_allclose(found[sure], expected[sure], rtol=2e-5, atol=1e-9 * largest)
