"""Convolutions over images: the encoders `nature small impala grid`, and the backbone `cnn` of version 0.1.0.

Frames stay bytes until they are inside the compiled program, where the factor 1/255 is folded into the weights of the
first convolution. Encoders compute with channels last; weights are stored as in the torch twin, (filters, channels,
height, width). A convolution is a product of patches and weights: on a CPU, XLA's own is as fast outside of loops but
14 times slower inside, where minibatches and steps are. `cnn` keeps XLA's, so that its runs keep their bits.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.config.schema import BackboneConfig
from rl_training.jax.models.backbones.base import Network
from rl_training.jax.models.backbones.mlp import dense_layers
from rl_training.jax.models.layers import ACTIVATIONS, Params, affine, encode, linear
from rl_training.jax.pytrees import named
from rl_training.numerics.encoding import leaf_features, observation_leaves, picture_axes, pictures_of
from rl_training.numerics.images import (
    FEATURES,
    IMPALA_FILTERS,
    PLANS,
    Convolution,
    ImageLayout,
    impala_sizes,
    plan_sizes,
)
from rl_training.numerics.initial_weights import GAINS, projection_matrix, weight_matrix
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


# -- encoders ---------------------------------------------------------------------------------------------------------

RELU_GAIN = GAINS["relu"]
BLOCKS = ("blocks.0", "blocks.1")
"""Residual blocks of a stage of IMPALA."""


def image_encoder(
    name: str, layout: ImageLayout, encoder: str, *, features: int | None = None, kind: str = "orthogonal"
) -> Network:
    """Convolutions with ReLUs over one image, then a linear layer: (B, *image) to (B, out_features)."""
    plan = PLANS.get(encoder)
    sizes = impala_sizes(layout) if plan is None else plan_sizes(layout, plan, encoder, name)
    width, outputs = math.prod(sizes[-1]), FEATURES[encoder] if features is None else features
    layers = [f"convolutions.{i if plan is None else 2 * i}" for i in range(len(sizes) - 1)]

    def init(rng: np.random.Generator) -> Params:
        params: Params = {}
        for i, (layer, (channels, _, _)) in enumerate(zip(layers, sizes, strict=False)):
            if plan is None:
                params |= named(layer, stage_weights(rng, channels, IMPALA_FILTERS[i], kind))
            else:
                params |= named(layer, convolution_weights(rng, channels, plan[i], kind))
        return params | named(
            "projection", linear(rng, width, outputs, kind=kind, gain=RELU_GAIN, draw=projection_matrix)
        )

    def apply(params: Params, images: Any) -> Any:
        x, scale = channels_last(images, layout), layout.scale
        for i, layer in enumerate(layers):
            if plan is None:
                x = residual_stage(params, layer, x, scale)
            else:
                x = jax.nn.relu(convolved(params, layer, x, plan[i], scale))
            scale = 1.0
        if plan is None:
            x = jax.nn.relu(x)  # stages end without one
        flat = x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # channels first, as torch flattens
        return jax.nn.relu(affine(params, "projection", flat))

    return Network(init, apply, outputs)


def channels_last(images: Any, layout: ImageLayout) -> Any:
    """(B, *image) to floats (B, height, width, channels), not scaled yet; codes are one-hot."""
    *folded, height, width = (1 + axis for axis in layout.axes)
    channels = len(layout.codes) or layout.channels
    x = jnp.asarray(images).transpose(0, height, width, *folded).reshape(-1, layout.height, layout.width, channels)
    if layout.codes:
        planes = [jax.nn.one_hot(x[..., i], count) for i, count in enumerate(layout.codes)]
        return jnp.concatenate(planes, axis=3)
    return x.astype(jnp.float32)


def convolution_weights(rng: np.random.Generator, channels: int, plan: Convolution, kind: str) -> Params:
    """Initial weight (filters, channels, kernel, kernel) and zero bias."""
    weight = weight_matrix(rng, plan.filters, channels * plan.kernel**2, kind, RELU_GAIN)
    shape = (plan.filters, channels, plan.kernel, plan.kernel)
    return {"weight": weight.reshape(shape), "bias": np.zeros(plan.filters, np.float32)}


def convolved(params: Params, layer: str, x: Any, plan: Convolution, scale: float = 1.0) -> Any:
    """A convolution of (B, height, width, channels); its input is multiplied by `scale`, by way of the weights.

    One product of patches and weights: inside a loop, XLA's own convolution takes 14 times as long on a CPU.
    """
    stride, blocks = plan.stride, plan.kernel // plan.stride
    assert plan.kernel % stride == 0, "a patch is whole blocks of stride x stride pixels"
    weight = params[f"{layer}.weight"].transpose(2, 3, 1, 0)  # (kernel, kernel, channels, filters)
    matrix = weight.reshape(blocks, stride, blocks, stride, *weight.shape[2:]).transpose(0, 2, 1, 3, 4, 5)
    matrix = matrix.reshape(-1, plan.filters) * np.float32(scale)
    seen = patches(x, plan, blocks)
    return (seen.reshape(-1, seen.shape[-1]) @ matrix).reshape(*seen.shape[:3], -1) + params[f"{layer}.bias"]


def patches(x: Any, plan: Convolution, blocks: int) -> Any:
    """What each place of a convolution sees, (B, height, width, kernel * kernel * channels) of its outputs.

    Pixels are gathered in blocks of stride x stride first, so that a patch is blocks x blocks neighbours.
    """
    edge, stride = plan.padding, plan.stride
    x = jnp.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0))) if edge else x
    rows, columns = ((side - plan.kernel) // stride + 1 for side in x.shape[1:3])
    high, wide = rows + blocks - 1, columns + blocks - 1
    x = x[:, : high * stride, : wide * stride]
    x = x.reshape(-1, high, stride, wide, stride, x.shape[3]).transpose(0, 1, 3, 2, 4, 5)
    x = x.reshape(*x.shape[:3], -1)
    parts = [x[:, i : i + rows, j : j + columns] for i in range(blocks) for j in range(blocks)]
    return jnp.concatenate(parts, axis=3)


def stage_weights(rng: np.random.Generator, channels: int, filters: int, kind: str) -> Params:
    """Weights of a stage of IMPALA: its first convolution and those of two residual blocks."""
    plan = Convolution(filters, 3, 1, 1)
    params = named("entry", convolution_weights(rng, channels, plan, kind))
    for block in BLOCKS:
        for layer in ("first", "second"):
            params |= named(f"{block}.{layer}", convolution_weights(rng, filters, plan, kind))
    return params


def residual_stage(params: Params, stage: str, x: Any, scale: float) -> Any:
    """A convolution, a halving by maxima, two residual blocks x + conv(relu(conv(relu(x))))."""
    plan = Convolution(len(params[f"{stage}.entry.bias"]), 3, 1, 1)
    x = convolved(params, f"{stage}.entry", x, plan, scale)
    around = ((0, 0), (1, 1), (1, 1), (0, 0))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), around)
    for block in BLOCKS:
        inner = convolved(params, f"{stage}.{block}.first", jax.nn.relu(x), plan)
        x = x + convolved(params, f"{stage}.{block}.second", jax.nn.relu(inner), plan)
    return x
