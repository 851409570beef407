"""Networks with batch renormalisation (Ioffe 2017, arXiv:1702.03275), single or as a batched ensemble.

Whether a pass uses and moves batch statistics is an argument, not a mode of the module.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.schema import BackboneConfig
from rl_training.models.backbones.mlp import ACTIVATIONS, MLP, TensorObs
from rl_training.models.critics import EnsembleLinear
from rl_training.numerics.initial_weights import GAINS
from rl_training.types import SpaceSpec

MAX_SCALE, MAX_SHIFT = 3.0, 5.0
"""Bounds of the correction towards the running statistics."""


class BatchRenorm(nn.Module):
    """Normalises the rows of (E, B, F), each member and feature separately.

    With `batch_statistics` a pass normalises by the mean and deviation of its own rows and moves the running ones;
    after `renorm_after` such passes the result is corrected to what the running statistics would give. Without, it
    uses the running statistics alone.
    """

    mean: Tensor
    var: Tensor
    passes: Tensor

    def __init__(self, members: int, features: int, momentum: float, renorm_after: int) -> None:
        super().__init__()
        self.momentum, self.renorm_after = momentum, renorm_after
        self.scale = nn.Parameter(torch.ones(members, 1, features))
        self.shift = nn.Parameter(torch.zeros(members, 1, features))
        self.register_buffer("mean", torch.zeros(members, 1, features))
        self.register_buffer("var", torch.ones(members, 1, features))
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, batch_statistics: bool) -> Tensor:
        if not batch_statistics:
            return torch.addcmul(self.shift, x - self.mean, torch.rsqrt(self.var + 1e-3) * self.scale)
        mean = x.mean(1, keepdim=True)
        centred = x - mean
        var = centred.square().mean(1, keepdim=True)
        inverse_std = torch.rsqrt(var + 1e-3)
        ratio: Tensor | float = 1.0
        offset: Tensor | float = 0.0
        with torch.no_grad():
            if int(self.passes) >= self.renorm_after:
                running_std = torch.sqrt(self.var + 1e-3)
                ratio = (1.0 / (inverse_std * running_std)).clamp(1.0 / MAX_SCALE, MAX_SCALE)
                offset = ((mean - self.mean) / running_std).clamp(-MAX_SHIFT, MAX_SHIFT)
            self.mean.lerp_(mean, self.momentum)
            self.var.lerp_(var, self.momentum)
            self.passes += 1
        # small factors first, so that there is one pass over the rows
        return torch.addcmul(offset * self.scale + self.shift, centred, inverse_std * ratio * self.scale)


class RenormNetwork(nn.Module):
    """E networks side by side with a normalisation in front of every layer; gives (E, B, outputs)."""

    def __init__(
        self,
        observation_space: SpaceSpec,
        cfg: BackboneConfig,
        rng: np.random.Generator,
        sizes: tuple[int, int, int],
        norm: tuple[float, int],
        output_gain: float,
    ) -> None:
        super().__init__()
        members, extra, outputs = sizes
        self.encoder = MLP(observation_space, BackboneConfig(hidden_dims=()), rng)
        size = self.encoder.out_features + extra
        gain = GAINS.get(cfg.activation, 1.0)
        widths = [size, *cfg.hidden_dims]
        self.norms = nn.ModuleList([BatchRenorm(members, width, *norm) for width in widths])
        self.layers = nn.ModuleList(
            [
                EnsembleLinear(rng, (members, inputs, hidden), kind=cfg.init, gain=gain)
                for inputs, hidden in pairwise(widths)
            ]
        )
        self.activation = ACTIVATIONS[cfg.activation]()
        self.output = EnsembleLinear(rng, (members, widths[-1], outputs), gain=output_gain)

    def forward(self, obs: TensorObs, actions: Tensor | None, batch_statistics: bool) -> Tensor:
        features = self.encoder.encode(obs)
        x = features if actions is None else torch.cat([features, actions.flatten(1)], dim=1)
        x = x.expand(len(self.output.weight), *x.shape)
        for norm, layer in zip(self.norms[:-1], self.layers, strict=True):
            x = self.activation(layer(norm(x, batch_statistics)))
        return cast(Tensor, self.output(self.norms[-1](x, batch_statistics)))


def concatenated(first: TensorObs, second: TensorObs) -> TensorObs:
    """Rows of two observations, one after the other."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {name: torch.cat([value, second[name]]) for name, value in first.items()}
    return torch.cat([cast(Tensor, first), cast(Tensor, second)])
