"""Q-networks of discrete actions: plain or dueling, one value or a distribution per action, with or without noise.

`forward` gives (B, A, K): K numbers per action, 1 for plain values, atoms or quantiles for distributions. The
algorithm decides what those numbers mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.config.schema import BackboneConfig
from rl_training.models.backbones.build import build_seeing, width
from rl_training.models.initialization import linear
from rl_training.models.observed import Seen, features_of
from rl_training.numerics.initial_weights import VALUE_GAIN, weight_matrix
from rl_training.types import SpaceSpec

Noise = dict[str, tuple[Tensor, Tensor]]
"""Factorised noise of each noisy layer: (inputs,) and (outputs,)."""


@dataclass(frozen=True)
class QShape:
    """Shape of the outputs of a Q-network."""

    actions: int
    numbers: int = 1
    """K, the numbers per action."""
    dueling: bool = False
    noisy_std: float | None = None
    """Initial scale of the noise; None means no noisy layers."""


class NoisyLinear(nn.Module):
    """A linear layer whose weights have a learnt amount of noise (Fortunato et al. 2018, arXiv:1706.10295)."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(weight_matrix(rng, outputs, inputs, "orthogonal", VALUE_GAIN)))
        self.bias = nn.Parameter(torch.zeros(outputs))
        scale = std / math.sqrt(inputs)
        self.weight_std = nn.Parameter(torch.full((outputs, inputs), scale))
        self.bias_std = nn.Parameter(torch.full((outputs,), scale))

    def draw(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Fresh noise for the inputs and for the outputs."""
        outputs, inputs = self.weight.shape
        numbers = rng.standard_normal(inputs + outputs, dtype=np.float32)
        shaped = torch.from_numpy(np.sign(numbers) * np.sqrt(np.abs(numbers))).to(self.weight.device)
        return shaped[:inputs], shaped[inputs:]

    def forward(self, x: Tensor, noise: tuple[Tensor, Tensor] | None) -> Tensor:
        if noise is None:
            return F.linear(x, self.weight, self.bias)
        into, out = noise
        return F.linear(x, self.weight + self.weight_std * torch.outer(out, into), self.bias + self.bias_std * out)


class ActionValues(nn.Module):
    """Backbone and head; `forward(obs, noise)` gives (B, A, K)."""

    def __init__(
        self,
        observation_space: SpaceSpec,
        shape: QShape,
        cfg: BackboneConfig,
        rng: np.random.Generator,
        *,
        visible: SpaceSpec | None = None,
    ) -> None:
        """`visible` is the part of the observations that the network sees; None shows it everything."""
        super().__init__()
        self.shape = shape
        self.backbone = build_seeing(observation_space, visible or observation_space, cfg, rng)
        features = width(self.backbone)
        self.advantage = self._layer(rng, features, shape.actions * shape.numbers)
        self.value = self._layer(rng, features, shape.numbers) if shape.dueling else None

    def _layer(self, rng: np.random.Generator, features: int, outputs: int) -> nn.Module:
        if self.shape.noisy_std is None:
            return linear(rng, features, outputs, gain=VALUE_GAIN)
        return NoisyLinear(rng, features, outputs, self.shape.noisy_std)

    def draw_noise(self, rng: np.random.Generator) -> Noise:
        """Fresh noise for one pass; empty for a network without noise."""
        layers = {"advantage": self.advantage, "value": self.value}
        return {name: layer.draw(rng) for name, layer in layers.items() if isinstance(layer, NoisyLinear)}

    def forward(self, obs: Seen, noise: Noise | None = None) -> Tensor:
        return self.numbers(features_of(self.backbone, obs), noise)

    def numbers(self, features: Tensor, noise: Noise | None = None) -> Tensor:
        """The outputs (B, A, K) for features of the backbone."""
        advantages = self._through(self.advantage, features, "advantage", noise).unflatten(1, (self.shape.actions, -1))
        if self.value is None:
            return cast(Tensor, advantages)
        values = self._through(self.value, features, "value", noise).unsqueeze(1)
        return cast(Tensor, values + advantages - advantages.mean(1, keepdim=True))

    @staticmethod
    def _through(layer: nn.Module, features: Tensor, name: str, noise: Noise | None) -> Tensor:
        if isinstance(layer, NoisyLinear):
            return layer(features, noise.get(name) if noise else None)  # type: ignore[no-any-return]
        return layer(features)  # type: ignore[no-any-return]
