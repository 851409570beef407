"""Convolutional backbone for image observations (Mnih et al. 2015), followed by fully connected layers."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.config.schema import BackboneConfig
from rl_training.jax.models.backbones.base import Network
from rl_training.jax.models.backbones.mlp import dense_layers
from rl_training.jax.models.layers import ACTIVATIONS, Params, encode
from rl_training.jax.pytrees import named
from rl_training.numerics.encoding import leaf_features, observation_leaves, picture_axes, pictures_of
from rl_training.numerics.initial_weights import GAINS, weight_matrix
from rl_training.types import BoxSpec, ConfigError, SpaceSpec

NATURE = {"channels": (32, 64, 64), "kernels": (8, 4, 3), "strides": (4, 2, 1)}
"""The convolutions of Mnih et al. 2015, for images of 84 x 84."""


def cnn(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """Convolutions over one image, then fully connected layers; all other observations join between the two.
    `encoding.picture_axes` says which axis holds the channels.

    `kwargs` may give other `channels`, `kernels` and `strides`; the defaults are those of the Nature paper.
    """
    leaves = observation_leaves(space)
    boxes = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, BoxSpec) and len(leaf.shape) == 3}
    pictures = pictures_of(space) or boxes
    if len(pictures) != 1:
        raise ConfigError(f"network 'cnn' needs one picture (a Box of three axes) to look at, not {len(pictures)}")
    ((picture, leaf),) = pictures.items()
    others = {name: other for name, other in leaves.items() if name != picture}
    plan, axes = convolutions(cfg), picture_axes(leaf.shape)
    *channels, height, width = (leaf.shape[axis] for axis in axes)
    sizes = layer_sizes(plan, (math.prod(channels), height, width))
    features = int(np.prod(sizes[-1])) + sum(map(leaf_features, others.values()))
    activation, gain = ACTIVATIONS[cfg.activation], GAINS.get(cfg.activation, 1.0)
    rest = dense_layers([features, *cfg.hidden_dims], cfg)

    def init(rng: np.random.Generator) -> Params:
        params: Params = {}
        for i, ((inputs, _, _), (channels, kernel, _)) in enumerate(zip(sizes, plan, strict=False)):
            weight = weight_matrix(rng, channels, inputs * kernel * kernel, cfg.init, gain)
            layer = {"weight": weight.reshape(channels, inputs, kernel, kernel), "bias": np.zeros(channels, np.float32)}
            params |= named(f"convolutions.{2 * i}", layer)
        return params | rest.init(rng)

    def apply(params: Params, obs: Any) -> Any:
        by_name = obs if isinstance(obs, dict) else {picture: obs}
        x = jnp.asarray(by_name[picture], jnp.float32) / (255.0 if leaf.dtype == np.uint8 else 1.0)
        x = x.transpose(0, *(1 + axis for axis in axes)).reshape(-1, *sizes[0])
        for i, (_, _, stride) in enumerate(plan):
            weight, bias = params[f"convolutions.{2 * i}.weight"], params[f"convolutions.{2 * i}.bias"]
            x = jax.lax.conv(x, weight, (stride, stride), "VALID")
            x = activation(x + bias[:, None, None])
        x = x.reshape(x.shape[0], -1)
        return rest.apply(params, jnp.concatenate([x, encode(others, by_name)], axis=1) if others else x)

    return Network(init, apply, rest.out_features)


def convolutions(cfg: BackboneConfig) -> list[tuple[int, int, int]]:
    """(channels, kernel, stride) of each convolution."""
    given = {**NATURE, **cfg.kwargs}
    if unknown := sorted(set(given) - set(NATURE)):
        raise ConfigError(f"network 'cnn' has no kwargs {', '.join(unknown)}; it has {', '.join(NATURE)}")
    columns: list[Any] = [given[name] for name in NATURE]
    if len({len(column) for column in columns}) != 1:
        raise ConfigError("network 'cnn' needs as many kwargs.channels as kernels and strides")
    return list(zip(*columns, strict=True))


def layer_sizes(plan: list[tuple[int, int, int]], image: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """(channels, height, width) of the image and after each convolution; ConfigError where a kernel is too large."""
    sizes = [image]
    for number, (filters, kernel, stride) in enumerate(plan):
        _, height, width = sizes[-1]
        if kernel > min(height, width):
            raise ConfigError(
                f"network 'cnn': convolution {number} looks at {kernel} x {kernel} of a picture that is {height} x "
                f"{width} there; set smaller network.*.kwargs.kernels and strides"
            )
        sizes.append((filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1))
    return sizes
