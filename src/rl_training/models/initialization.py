"""Initial weights from a NumPy generator: owned randomness, and the same numbers for the torch and the JAX twin."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from rl_training.types import Array


def orthogonal(rng: np.random.Generator, rows: int, columns: int, gain: float) -> Array:
    """A (rows, columns) matrix with orthonormal rows or columns, times `gain` (Saxe et al. 2014)."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))  # makes the decomposition unique and the distribution uniform
    return np.ascontiguousarray((q if rows >= columns else q.T) * gain, dtype=np.float32)


def weight_matrix(rng: np.random.Generator, rows: int, columns: int, kind: str, gain: float) -> Array:
    """Initial weights of a linear layer with `columns` inputs and `rows` outputs."""
    if kind == "orthogonal":
        return orthogonal(rng, rows, columns, gain)
    variance = {"xavier": 2.0 / (rows + columns), "kaiming": 1.0 / columns, "lecun": 1.0 / columns}[kind]
    bound = gain * math.sqrt(3.0 * variance)  # a uniform distribution of that variance
    return rng.uniform(-bound, bound, (rows, columns)).astype(np.float32)


def linear(rng: np.random.Generator, inputs: int, outputs: int, *, kind: str = "orthogonal", gain: float) -> nn.Linear:
    """A linear layer with weights from `rng` and biases 0. Torch's own random initialisation is never run."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight_matrix(rng, outputs, inputs, kind, gain)))
        layer.bias.zero_()
    return layer
