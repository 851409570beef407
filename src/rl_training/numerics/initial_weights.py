"""Initial weights drawn from a NumPy generator, so that torch and JAX networks start from the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rl_training.types import Array

Draw = Callable[[np.random.Generator, int, int, str, float], Array]
"""(rng, outputs, inputs, kind, gain) -> the weights of a linear layer"""
GAINS = {"tanh": math.sqrt(2.0), "relu": math.sqrt(2.0), "leaky_relu": math.sqrt(2.0)}
"""Hidden gain sqrt(2) as in the original PPO code, also for tanh; 1 for the others."""
POLICY_GAIN = 0.01  # a nearly uniform first policy; the value of the original PPO code
VALUE_GAIN = 1.0
WIDE = 32_768
"""Inputs from which the layer behind convolutions is made orthogonal in the cheaper way."""
MAX_ASPECT = 1 / 16
"""Largest ratio of height to width for it: random rows of a wider matrix are nearly orthogonal."""


def orthogonal(rng: np.random.Generator, rows: int, columns: int, gain: float) -> Array:
    """A (rows, columns) matrix with orthonormal rows or columns, times `gain` (Saxe et al. 2014)."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))  # makes the decomposition unique and the distribution uniform
    return np.ascontiguousarray((q if rows >= columns else q.T) * gain, dtype=np.float32)


def wide_orthogonal(rng: np.random.Generator, rows: int, columns: int, gain: float) -> Array:
    """`orthogonal` for matrices much wider than high, in a sixth of the time and with the same draws.

    The triangular factor comes from the products of the rows with each other (Cholesky), which are as good as a QR
    decomposition as long as random rows are nearly orthogonal already. Weights differ from those of `orthogonal` in the
    last bit at most.
    """
    tall = rng.standard_normal((columns, rows))
    lower = np.linalg.cholesky(tall.T @ tall)
    return np.ascontiguousarray(np.linalg.solve(lower, tall.T) * gain, dtype=np.float32)


def projection_matrix(rng: np.random.Generator, rows: int, columns: int, kind: str, gain: float) -> Array:
    """`weight_matrix` of the layer behind convolutions, which can be very wide."""
    if kind == "orthogonal" and columns >= WIDE and rows < MAX_ASPECT * columns:
        return wide_orthogonal(rng, rows, columns, gain)
    return weight_matrix(rng, rows, columns, kind, gain)


def weight_matrix(rng: np.random.Generator, rows: int, columns: int, kind: str, gain: float) -> Array:
    """Initial weights of a linear layer with `columns` inputs and `rows` outputs."""
    if kind == "orthogonal":
        return orthogonal(rng, rows, columns, gain)
    variance = {"xavier": 2.0 / (rows + columns), "kaiming": 1.0 / columns, "lecun": 1.0 / columns}[kind]
    bound = gain * math.sqrt(3.0 * variance)  # a uniform distribution of that variance
    return rng.uniform(-bound, bound, (rows, columns)).astype(np.float32)


TRUNCATED_SD = 0.8796256610342398
"""Standard deviation of a standard normal that is truncated at 2."""


def truncated_normal(
    rng: np.random.Generator, shape: tuple[int, ...], fan_in: int, scale: float = 1.0, dtype: type = np.float32
) -> Array:
    """Normal numbers truncated at two standard deviations, with the standard deviation scale / sqrt(fan_in).

    The initial weights of DreamerV3. Numbers beyond the limit are drawn again; with `scale` 0 nothing is drawn.
    """
    if scale == 0.0:
        return np.zeros(shape, dtype)
    numbers = rng.standard_normal(shape)
    while (beyond := np.abs(numbers) > 2.0).any():
        numbers[beyond] = rng.standard_normal(int(beyond.sum()))
    numbers *= scale / (TRUNCATED_SD * math.sqrt(fan_in))
    return numbers.astype(dtype)
