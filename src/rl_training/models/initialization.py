"""Torch layers with initial weights from a NumPy generator."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rl_training.numerics.initial_weights import Draw, weight_matrix


def linear(
    rng: np.random.Generator,
    inputs: int,
    outputs: int,
    *,
    kind: str = "orthogonal",
    gain: float,
    draw: Draw = weight_matrix,
) -> nn.Linear:
    """A linear layer with weights from `rng` and biases 0. Torch's own random initialisation is never run."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(draw(rng, outputs, inputs, kind, gain)))
        layer.bias.zero_()
    return layer
