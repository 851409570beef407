"""Image encoder of DreamerV3 in JAX: the twin of `rl_training.models.world_models.image_encoder`, channels last."""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np

from rl_training.jax.models.backbones.cnn import channels_last, convolved
from rl_training.jax.models.layers import Params
from rl_training.jax.models.world_models.layers import rms_norm, scoped, silu
from rl_training.numerics.images import (
    WORLD_MODEL_CHANNELS,
    WORLD_MODEL_KERNEL,
    Convolution,
    ImageLayout,
    check_world_model_image,
)
from rl_training.numerics.initial_weights import truncated_normal


def convolution_init(rng: np.random.Generator, inputs: int, outputs: int) -> Params:
    """Weights (outputs, inputs, 5, 5) as torch stores them, and zero bias."""
    size = WORLD_MODEL_KERNEL
    weight = truncated_normal(rng, (outputs, inputs, size, size), inputs * size**2)
    return {"weight": weight, "bias": np.zeros(outputs, np.float32)}


def convolution(params: Params, layer: str, x: Any) -> Any:
    """A 5x5 convolution of (B, height, width, channels) that keeps height and width."""
    filters = len(params[f"{layer}.bias"])
    return convolved(params, layer, x, Convolution(filters, WORLD_MODEL_KERNEL, 1, WORLD_MODEL_KERNEL // 2))


def halved(x: Any) -> Any:
    """Maxima over squares of 2 x 2."""
    rows, height, width, channels = x.shape
    squares = x.reshape(rows, height // 2, 2, width // 2, 2, channels)
    left, right = squares[:, :, :, :, 0], squares[:, :, :, :, 1]
    wide = jnp.maximum(left, right)
    return jnp.maximum(wide[:, :, 0], wide[:, :, 1])


def encoder_features(layout: ImageLayout, depth: int) -> int:
    """Size of an encoded image; ConfigError where the stages do not divide it evenly."""
    check_world_model_image(layout.height, layout.width)
    factor: int = 2 ** len(WORLD_MODEL_CHANNELS)
    return WORLD_MODEL_CHANNELS[-1] * depth * (layout.height // factor) * (layout.width // factor)


def image_encoder_init(rng: np.random.Generator, layout: ImageLayout, depth: int) -> Params:
    """Convolutions and the scales of their norms."""
    sizes = [layout.channels, *(depth * factor for factor in WORLD_MODEL_CHANNELS)]
    params: Params = {}
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        params |= scoped(f"convolutions.{i}", convolution_init(rng, inputs, outputs))
        params[f"norms.{i}.scale"] = np.ones(outputs, np.float32)
    return params


def scaled_image(images: Any, layout: ImageLayout) -> Any:
    """Raw images (B, ...) as floats in 0..1, (B, height, width, channels)."""
    return channels_last(images, layout) * np.float32(layout.scale)


def image_encoder(params: Params, images: Any) -> Any:
    """Images in 0..1 (B, height, width, channels) to features (B, F)."""
    x = images - 0.5
    for i in range(len(WORLD_MODEL_CHANNELS)):
        x = silu(rms_norm(halved(convolution(params, f"convolutions.{i}", x)), params[f"norms.{i}.scale"]))
    return x.reshape(len(x), -1)
