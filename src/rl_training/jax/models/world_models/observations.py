"""Observations of any space for world models in JAX: the twin of `rl_training.models.world_models.observations`.

Images pass through convolutions; everything else is one vector: one-hot where discrete, symlog of the numbers where
not. Without images `encode` works on NumPy arrays too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rl_training.hparams.world_models import ModelSize
from rl_training.jax.models.layers import Params, encode_leaf, library
from rl_training.jax.models.world_models.image_decoder import ImageDecoder
from rl_training.jax.models.world_models.image_encoder import (
    encoder_features,
    image_encoder,
    image_encoder_init,
    scaled_image,
)
from rl_training.jax.models.world_models.layers import normed_mlp, normed_mlp_init, part, scoped
from rl_training.jax.models.world_models.two_hot import symlog
from rl_training.numerics.images import ObservationParts, observation_parts
from rl_training.types import SpaceSpec


def key_of(name: str) -> str:
    """Name of an image's networks: a dot would end it."""
    return f"images.{name.replace('.', '_')}"


def vector_of(parts: ObservationParts, obs: Any) -> Any:
    """symlog of all that is no image, (B, vector size)."""
    named = obs if isinstance(obs, dict) else {"obs": obs}
    columns = [encode_leaf(leaf, named[name]) for name, leaf in parts.vectors.items()]
    return symlog(columns[0] if len(columns) == 1 else library(columns[0]).concatenate(columns, axis=1))


class Encoder(NamedTuple):
    """Observations (B, ...) to tokens (B, features)."""

    parts: ObservationParts
    size: ModelSize

    @property
    def features(self) -> int:
        """Size of the tokens."""
        images = sum(encoder_features(layout, self.size.depth) for layout in self.parts.images.values())
        return images + (self.size.units if self.parts.vectors else 0)

    def init(self, rng: np.random.Generator) -> Params:
        """Initial parameters, drawn in the order of the torch twin."""
        params: Params = {}
        if self.parts.vectors:
            inputs = sum(self.parts.sizes.values())
            params |= scoped("vector", normed_mlp_init(rng, inputs, self.size.units, self.size.layers))
        for name, layout in self.parts.images.items():
            params |= scoped(key_of(name), image_encoder_init(rng, layout, self.size.depth))
        return params

    def apply(self, params: Params, obs: Any) -> Any:
        named = obs if isinstance(obs, dict) else {"obs": obs}
        tokens = [normed_mlp(part(params, "vector"), vector_of(self.parts, obs))] if self.parts.vectors else []
        for name, layout in self.parts.images.items():
            tokens.append(image_encoder(part(params, key_of(name)), scaled_image(named[name], layout)))
        return tokens[0] if len(tokens) == 1 else jnp.concatenate(tokens, axis=1)


class Decoder(NamedTuple):
    """Features of a state (B, F) to predicted observations: the vector in symlog space, images in 0..1."""

    parts: ObservationParts
    size: ModelSize
    deter: int
    stoch: int
    blocks: int

    def init(self, rng: np.random.Generator) -> Params:
        """Initial parameters, drawn in the order of the torch twin."""
        params: Params = {}
        if self.parts.vectors:
            outputs = sum(self.parts.sizes.values())
            layers = normed_mlp_init(rng, self.deter + self.stoch, self.size.units, self.size.layers, outputs)
            params |= scoped("vector", layers)
        for name in self.parts.images:
            params |= scoped(key_of(name), self._image(name).init(rng))
        return params

    def apply(self, params: Params, features: Any) -> dict[str, Any]:
        """Predictions by key; vectors (B, n) in symlog space, images (B, height, width, channels)."""
        predicted = self._split(normed_mlp(part(params, "vector"), features)) if self.parts.vectors else {}
        images = {name: self._image(name).apply(part(params, key_of(name)), features) for name in self.parts.images}
        return {**predicted, **images}

    def targets(self, obs: Any) -> dict[str, Any]:
        """True observations in the form of `apply`."""
        named = obs if isinstance(obs, dict) else {"obs": obs}
        found = self._split(vector_of(self.parts, obs)) if self.parts.vectors else {}
        return {**found, **{name: scaled_image(named[name], layout) for name, layout in self.parts.images.items()}}

    def loss(self, params: Params, features: Any, obs: Any) -> Any:
        """Squared errors (B,), summed over everything that is observed."""
        predicted, true = self.apply(params, features), self.targets(obs)
        return sum(jnp.square(predicted[name] - true[name]).reshape(len(features), -1).sum(1) for name in true)

    def _image(self, name: str) -> ImageDecoder:
        layout, size = self.parts.images[name], self.size
        return ImageDecoder(layout, self.deter, self.stoch, size.depth, size.units, self.blocks)

    def _split(self, vector: Any) -> dict[str, Any]:
        """The columns of a vector by key."""
        sizes = self.parts.sizes
        ends = np.cumsum([0, *sizes.values()])
        return {name: vector[:, ends[i] : ends[i + 1]] for i, name in enumerate(sizes)}


def encoder_of(space: SpaceSpec, size: ModelSize) -> Encoder:
    """The encoder of a space."""
    return Encoder(observation_parts(space), size)
