"""Observations of any space for world models: encoded into tokens, and predicted back from the features of a state.

Images pass through convolutions; everything else is one vector: one-hot where discrete, symlog of the numbers where
not, so that no statistics of observations are needed (DreamerV3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.hparams.world_models import ModelSize
from rl_training.models.backbones.cnn import to_channels
from rl_training.models.backbones.mlp import TensorObs, encode_leaf
from rl_training.models.world_models.image_decoder import ImageDecoder
from rl_training.models.world_models.image_encoder import ImageEncoder
from rl_training.models.world_models.layers import NormedMLP
from rl_training.models.world_models.two_hot import symlog
from rl_training.numerics.images import observation_parts
from rl_training.types import SpaceSpec


class ObservationFormat:
    """Which parts of a space are images and which join into one vector."""

    def __init__(self, space: SpaceSpec) -> None:
        parts = observation_parts(space)
        self.images, self.vectors, self.sizes = parts.images, parts.vectors, parts.sizes
        leaves = [*self.images, *self.vectors]
        self.only = leaves[0] if len(leaves) == 1 else None

    @property
    def vector_size(self) -> int:
        return sum(self.sizes.values())

    def named(self, obs: TensorObs) -> dict[str, Tensor]:
        return obs if isinstance(obs, dict) else {"obs": obs}

    def vector(self, obs: TensorObs) -> Tensor:
        """symlog of all that is no image, (B, vector_size)."""
        named = self.named(obs)
        return symlog(torch.cat([encode_leaf(leaf, named[name]) for name, leaf in self.vectors.items()], dim=1))

    def image(self, name: str, obs: TensorObs) -> Tensor:
        """One image as floats in 0..1, (B, channels, height, width)."""
        layout = self.images[name]
        return to_channels(self.named(obs)[name], layout) * layout.scale


class ObservationEncoder(nn.Module):
    """Observations (B, ...) to tokens (B, out_features)."""

    def __init__(self, space: SpaceSpec, size: ModelSize, rng: np.random.Generator) -> None:
        super().__init__()
        self.format = ObservationFormat(space)
        vector = self.format.vector_size
        self.vector = NormedMLP(rng, vector, size.units, size.layers) if vector else None
        self.images = nn.ModuleDict(
            {
                name.replace(".", "_"): ImageEncoder(rng, (layout.channels, layout.height, layout.width), size.depth)
                for name, layout in self.format.images.items()
            }
        )
        image_features: list[Any] = [encoder.out_features for encoder in self.images.values()]
        self.out_features = (size.units if vector else 0) + sum(image_features)

    def forward(self, obs: TensorObs) -> Tensor:
        parts = [] if self.vector is None else [self.vector(self.format.vector(obs))]
        for name, encoder in zip(self.format.images, self.images.values(), strict=True):
            parts.append(encoder(self.format.image(name, obs)))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class ObservationDecoder(nn.Module):
    """Features of a state (B, F) to predicted observations: the vector in symlog space, images in 0..1."""

    def __init__(
        self, space: SpaceSpec, features: tuple[int, int], size: ModelSize, rng: np.random.Generator, *, blocks: int
    ) -> None:
        """`features` are the deterministic and the random ones; `blocks` are those of the dynamics."""
        super().__init__()
        self.format = ObservationFormat(space)
        vector = self.format.vector_size
        self.vector = NormedMLP(rng, sum(features), size.units, size.layers, vector) if vector else None
        self.images = nn.ModuleDict(
            {
                name.replace(".", "_"): ImageDecoder(
                    rng,
                    features,
                    (layout.channels, layout.height, layout.width),
                    depth=size.depth,
                    units=size.units,
                    blocks=blocks,
                )
                for name, layout in self.format.images.items()
            }
        )

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """Predictions by key; vectors (B, n) in symlog space, images (B, channels, height, width)."""
        predicted: dict[str, Tensor] = {}
        if self.vector is not None:
            parts = self.vector(features).split(list(self.format.sizes.values()), dim=1)
            predicted.update(zip(self.format.sizes, parts, strict=True))
        for name, decoder in zip(self.format.images, self.images.values(), strict=True):
            predicted[name] = decoder(features)
        return predicted

    def targets(self, obs: TensorObs) -> dict[str, Tensor]:
        """True observations in the form of `forward`."""
        found: dict[str, Tensor] = {}
        if self.format.vectors:
            parts = self.format.vector(obs).split(list(self.format.sizes.values()), dim=1)
            found.update(zip(self.format.sizes, parts, strict=True))
        return found | {name: self.format.image(name, obs) for name in self.format.images}

    def loss(self, features: Tensor, obs: TensorObs) -> Tensor:
        """Squared errors (B,), summed over everything that is observed."""
        predicted, true = self(features), self.targets(obs)
        return torch.stack([(predicted[name] - true[name]).square().flatten(1).sum(1) for name in true]).sum(0)
