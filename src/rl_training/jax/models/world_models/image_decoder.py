"""Image decoder of DreamerV3 in JAX: the twin of `rl_training.models.world_models.image_decoder`, channels last."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.models.layers import Params
from rl_training.jax.models.world_models.image_encoder import convolution, convolution_init
from rl_training.jax.models.world_models.layers import (
    block_linear,
    block_linear_init,
    dense,
    dense_init,
    normed_layer,
    normed_layer_init,
    part,
    rms_norm,
    scoped,
    silu,
)
from rl_training.numerics.images import WORLD_MODEL_CHANNELS, ImageLayout, check_world_model_image


class ImageDecoder(NamedTuple):
    """Sizes of a decoder; its functions take the parameters as an argument."""

    layout: ImageLayout
    deter: int
    """Deterministic features, the first ones of a state; they enter by a block-linear layer. May be 0."""
    stoch: int
    """Random features, which enter by a layer of their own. May be 0."""
    depth: int
    units: int
    blocks: int

    @property
    def channels(self) -> list[int]:
        """Channels of each stage, the one nearest to the image first."""
        return [self.depth * factor for factor in WORLD_MODEL_CHANNELS]

    @property
    def lowest(self) -> tuple[int, int, int]:
        """Height, width and channels of the smallest stage."""
        factor = 2 ** len(WORLD_MODEL_CHANNELS)
        return self.layout.height // factor, self.layout.width // factor, self.channels[-1]

    def init(self, rng: np.random.Generator) -> Params:
        """Initial parameters, drawn in the order of the torch twin."""
        check_world_model_image(self.layout.height, self.layout.width)
        size, sizes = int(np.prod(self.lowest)), self.channels
        params: Params = {"norm.scale": np.ones(sizes[-1], np.float32)}
        if self.deter:
            params |= scoped("from_deter", block_linear_init(rng, self.deter, size, self.blocks))
        if self.stoch:
            params |= scoped("hidden", normed_layer_init(rng, self.stoch, 2 * self.units))
            params |= scoped("from_stoch", dense_init(rng, 2 * self.units, size))
        for i, (inputs, outputs) in enumerate(zip(sizes[:0:-1], sizes[-2::-1], strict=True)):
            params |= scoped(f"convolutions.{i}", convolution_init(rng, inputs, outputs))
            params[f"norms.{i}.scale"] = np.ones(outputs, np.float32)
        return {**params, **scoped("output", convolution_init(rng, sizes[0], self.layout.channels))}

    def apply(self, params: Params, features: Any) -> Any:
        """Features (B, deter + stoch) to images (B, height, width, channels) in 0..1."""
        height, width, channels = self.lowest
        parts = []
        if self.deter:
            grouped = block_linear(part(params, "from_deter"), features[:, : self.deter])
            grouped = grouped.reshape(-1, self.blocks, height, width, channels // self.blocks)
            parts.append(grouped.transpose(0, 2, 3, 1, 4).reshape(-1, height, width, channels))
        if self.stoch:
            hidden = normed_layer(part(params, "hidden"), features[:, self.deter :])
            parts.append(dense(part(params, "from_stoch"), hidden).reshape(-1, height, width, channels))
        x = sum(parts[1:], parts[0])
        x = silu(rms_norm(x, params["norm.scale"]))
        for i in range(len(WORLD_MODEL_CHANNELS) - 1):
            x = silu(rms_norm(convolution(params, f"convolutions.{i}", doubled(x)), params[f"norms.{i}.scale"]))
        return jax.nn.sigmoid(convolution(params, "output", doubled(x)))


def doubled(x: Any) -> Any:
    """Every pixel as a square of 2 x 2."""
    rows, height, width, channels = x.shape
    squares = jnp.broadcast_to(x[:, :, None, :, None], (rows, height, 2, width, 2, channels))
    return squares.reshape(rows, 2 * height, 2 * width, channels)
