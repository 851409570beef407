"""Layers that world models are built from: linear or block-linear, then RMS norm, then SiLU (DreamerV3).

Initial weights are normal numbers truncated at two standard deviations, with variance 1 / fan_in, from a NumPy
generator; biases are 0.
"""

from __future__ import annotations

import itertools
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.numerics.initial_weights import truncated_normal
from rl_training.types import ConfigError

RMS_EPS = 1e-4
"""Added to the mean square, as in DreamerV3."""


def dense(rng: np.random.Generator, inputs: int, outputs: int, scale: float = 1.0) -> nn.Linear:
    """A linear layer whose weights have the standard deviation scale / sqrt(inputs); with `scale` 0 it gives 0."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(truncated_normal(rng, (outputs, inputs), inputs, scale)))
        layer.bias.zero_()
    return layer


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + 1e-4) over the last axis, times a learnt scale; nothing is subtracted or shifted."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.scale.shape, self.scale, RMS_EPS)


class BlockLinear(nn.Module):
    """A linear layer whose matrix is block-diagonal: G blocks, each from inputs / G to outputs / G features.

    The weights (G, inputs / G, outputs / G) start with the *whole* input as fan-in, as in DreamerV3, not with that of
    one block.
    """

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, blocks: int) -> None:
        super().__init__()
        if inputs % blocks or outputs % blocks:
            raise ConfigError(f"{blocks} blocks divide neither or only one of {inputs} inputs and {outputs} outputs")
        shape = (blocks, inputs // blocks, outputs // blocks)
        self.weight = nn.Parameter(torch.from_numpy(truncated_normal(rng, shape, inputs)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs) to (B, outputs); block g of the input gives block g of the output."""
        return self.by_block(x).transpose(0, 1).reshape(x.shape[0], -1)

    def by_block(self, x: Tensor) -> Tensor:
        """(B, inputs) to (G, B, outputs / G): the same, without the copy that puts the blocks side by side."""
        blocks, inputs, outputs = self.weight.shape
        if blocks == 1:
            return torch.addmm(self.bias, x, self.weight[0])[None]
        grouped = x.view(x.shape[0], blocks, inputs).transpose(0, 1)  # group-major: one batched product
        return torch.baddbmm(self.bias.view(blocks, 1, outputs), grouped, self.weight)


class NormedLayer(nn.Module):
    """Linear, RMS norm, SiLU."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = dense(rng, inputs, outputs)
        self.norm = RMSNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(self.linear(x)))


class NormedMLP(nn.Module):
    """`layers` normed layers of `units` features and, where `outputs` is given, a linear layer behind them."""

    def __init__(
        self,
        rng: np.random.Generator,
        inputs: int,
        units: int,
        layers: int,
        outputs: int | None = None,
        output_scale: float = 1.0,
    ) -> None:
        super().__init__()
        sizes = [inputs, *[units] * layers]
        self.layers = nn.Sequential(*(NormedLayer(rng, *pair) for pair in itertools.pairwise(sizes)))
        self.output = nn.Identity() if outputs is None else dense(rng, sizes[-1], outputs, output_scale)
        self.out_features = sizes[-1] if outputs is None else outputs

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.output(self.layers(x)))
