"""Observations to features: normaliser, encoders, layers and memory as nodes, from the weights of a checkpoint.

Weights have the same names in both backends, so that one function serves them: `layers.0.weight`,
`images.KEY.convolutions.0.weight`, `cell.input.weight`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rl_training.config.networks import encoders_of
from rl_training.config.schema import BackboneConfig
from rl_training.export.graph import GraphBuilder
from rl_training.numerics.encoding import observation_leaves
from rl_training.numerics.images import (
    IMPALA_FILTERS,
    PLANS,
    Convolution,
    ImageLayout,
    convolution_plan,
    image_layout,
    only_image,
)
from rl_training.numerics.normalization import CLIP, RunningMeanStd
from rl_training.types import (
    ACTION_MASK,
    Array,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    LeafSpec,
    MultiDiscreteSpec,
    SpaceSpec,
    StateDict,
)

Weights = Mapping[str, Array]
"""Arrays by dotted name, matrices as (outputs, inputs)."""


def below(weights: Weights, prefix: str) -> dict[str, Array]:
    """The weights `prefix.name`, under `name`."""
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in weights.items() if name.startswith(start)}


def inputs_of(builder: GraphBuilder, space: SpaceSpec, normalizer: StateDict) -> dict[str, str]:
    """The observations as inputs, normalised where the policy does so: names of leaves to values."""
    seen = {}
    for key, leaf in observation_leaves(space).items():
        name = f"obs/{key}" if isinstance(space, DictSpec) else "obs"
        value = builder.input(name, leaf.dtype, leaf.shape)
        seen[key] = normalized(builder, value, leaf.shape, normalizer[key]) if key in normalizer else value
    return seen


def mask_of(builder: GraphBuilder, space: SpaceSpec) -> str | None:
    """The action mask as an input, if there is one."""
    mask = space.spaces.get(ACTION_MASK) if isinstance(space, DictSpec) else None
    return None if mask is None else builder.input(ACTION_MASK, mask.dtype, mask.shape)


def normalized(builder: GraphBuilder, value: str, shape: tuple[int, ...], state: StateDict) -> str:
    """(x - mean) / std within the clip, computed in float64 as the policy does."""
    statistics = RunningMeanStd(shape)
    statistics.load_state_dict(state)
    mean, inverse_std = (builder.constant(part, np.float64) for part in statistics.affine())
    centred = builder.add("Sub", builder.cast(value, np.float64), mean)
    scaled = builder.add("Mul", centred, inverse_std)
    return builder.cast(builder.clipped(scaled, -CLIP, CLIP, np.float64), np.float32)


def encoded(builder: GraphBuilder, leaf: LeafSpec, value: str) -> str:
    """One observation as floats (B, features): codes one-hot, the rest flattened, bytes scaled to 0..1."""
    if isinstance(leaf, DiscreteSpec):
        return builder.one_hot(builder.reshape(value, 1), leaf.n)
    if isinstance(leaf, MultiDiscreteSpec):
        rows = builder.cast(value, np.int64)
        parts = [builder.one_hot(builder.columns(rows, i, i + 1), n) for i, n in enumerate(leaf.nvec)]
        return builder.joined(parts)
    flat = builder.reshape(value, math.prod(leaf.shape))
    if isinstance(leaf, BoxSpec) and leaf.codes is not None:
        positions, values = (builder.constant(part, np.int64) for part in leaf.codes[:2])
        repeated = builder.add("Gather", builder.cast(flat, np.int64), positions, axis=1)
        known = builder.cast(builder.add("Equal", repeated, values), np.float32)
        return builder.add("Mul", known, builder.constant(leaf.codes.scale))
    is_bytes = isinstance(leaf, BoxSpec) and leaf.dtype == np.uint8
    numbers = builder.cast(flat, np.float32)
    return builder.add("Div", numbers, builder.constant(255.0)) if is_bytes else numbers


# -- activations and layers -------------------------------------------------------------------------------------------


def activated(builder: GraphBuilder, name: str, x: str) -> str:
    """The activation of a config."""
    match name:
        case "identity":
            return x
        case "silu":
            return builder.add("Mul", x, builder.add("Sigmoid", x))
        case "gelu":
            scaled = builder.add("Erf", builder.add("Mul", x, builder.constant(1.0 / math.sqrt(2.0))))
            share = builder.add("Mul", builder.add("Add", scaled, builder.constant(1.0)), builder.constant(0.5))
            return builder.add("Mul", x, share)
        case "leaky_relu":
            return builder.add("LeakyRelu", x, alpha=0.01)
        case _:
            return builder.add({"tanh": "Tanh", "relu": "Relu", "elu": "Elu"}[name], x)


def dense(builder: GraphBuilder, weights: Weights, cfg: BackboneConfig, x: str) -> str:
    """The fully connected layers of a backbone."""
    stride = 3 if cfg.layer_norm else 2  # linear, norm and activation are numbered one after the other
    for i in range(len(cfg.hidden_dims)):
        x = layer(builder, weights, f"layers.{stride * i}", x)
        if cfg.layer_norm:
            scale, shift = (weights[f"layers.{stride * i + 1}.{part}"] for part in ("weight", "bias"))
            x = builder.add(
                "LayerNormalization", x, builder.constant(scale), builder.constant(shift), axis=-1, epsilon=1e-5
            )
        x = activated(builder, cfg.activation, x)
    return x


def layer(builder: GraphBuilder, weights: Weights, name: str, x: str) -> str:
    """One linear layer."""
    return builder.affine(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


# -- images -----------------------------------------------------------------------------------------------------------


def channels_first(builder: GraphBuilder, layout: ImageLayout, images: str) -> str:
    """Images (B, *image) as floats (B, channels, height, width), not scaled yet; codes are one-hot."""
    moved = builder.add("Transpose", images, perm=[0, *(1 + axis for axis in layout.axes)])
    count = len(layout.codes) or layout.channels
    folded = builder.reshape(moved, count, layout.height, layout.width)
    if not layout.codes:
        return builder.cast(folded, np.float32)
    whole = builder.cast(folded, np.int64)
    planes = [builder.one_hot(builder.columns(whole, i, i + 1), n, axes=4) for i, n in enumerate(layout.codes)]
    return builder.joined(planes)


def convolved(builder: GraphBuilder, weights: Weights, name: str, x: str, plan: Convolution, scale: float = 1.0) -> str:
    """A convolution, with the scale of the image folded into its weights."""
    weight = builder.constant(weights[f"{name}.weight"] * np.float32(scale))
    bias = builder.constant(weights[f"{name}.bias"])
    return builder.add("Conv", x, weight, bias, strides=[plan.stride] * 2, pads=[plan.padding] * 4)


def image_features(builder: GraphBuilder, weights: Weights, encoder: str, layout: ImageLayout, images: str) -> str:
    """One of the encoders `nature small grid impala`."""
    x, scale = channels_first(builder, layout, images), layout.scale
    if encoder == "impala":
        for number in range(len(IMPALA_FILTERS)):
            x = residual_stage(builder, below(weights, f"convolutions.{number}"), x, scale if number == 0 else 1.0)
        x = builder.add("Relu", x)
    else:
        for number, plan in enumerate(PLANS[encoder]):
            name = f"convolutions.{2 * number}"
            x = builder.add("Relu", convolved(builder, weights, name, x, plan, scale if number == 0 else 1.0))
    flat = builder.reshape(x, weights["projection.weight"].shape[1])
    return builder.add("Relu", layer(builder, weights, "projection", flat))


def residual_stage(builder: GraphBuilder, weights: Weights, x: str, scale: float) -> str:
    """A convolution, a halving by maxima, two blocks x + conv(relu(conv(relu(x))))."""
    plan = Convolution(0, 3, 1, 1)
    x = convolved(builder, weights, "entry", x, plan, scale)
    x = builder.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for block in ("blocks.0", "blocks.1"):
        inner = convolved(builder, weights, f"{block}.first", builder.add("Relu", x), plan)
        x = builder.add("Add", x, convolved(builder, weights, f"{block}.second", builder.add("Relu", inner), plan))
    return x


# -- backbones --------------------------------------------------------------------------------------------------------


def encodings(
    builder: GraphBuilder, space: SpaceSpec, cfg: BackboneConfig, weights: Weights, seen: Mapping[str, str]
) -> str:
    """All observations side by side, images through their convolutions."""
    leaves, chosen = observation_leaves(space), encoders_of(space, cfg.encoder)
    parts = []
    for key, encoder in chosen.items():
        leaf = leaves[key]
        assert isinstance(leaf, BoxSpec), "an image is a Box"
        own = below(weights, f"images.{key.replace('.', '_')}")
        parts.append(image_features(builder, own, encoder, image_layout(leaf, cfg.encoder.channels), seen[key]))
    parts += [encoded(builder, leaf, seen[key]) for key, leaf in leaves.items() if key not in chosen]
    return builder.joined(parts)


def cnn_features(
    builder: GraphBuilder, space: SpaceSpec, cfg: BackboneConfig, weights: Weights, seen: Mapping[str, str]
) -> str:
    """The backbone `cnn`: convolutions over one image, then layers; other observations join between the two."""
    picture, leaf = only_image(space)
    layout = image_layout(leaf)._replace(codes=())
    # the channels of codes are one-hot elsewhere; here every channel is brightness
    layout = layout._replace(channels=math.prod(leaf.shape) // (layout.height * layout.width))
    layout = layout._replace(scale=1.0 / 255.0 if leaf.dtype == np.uint8 else 1.0)
    x, height, width = channels_first(builder, layout, seen[picture]), layout.height, layout.width
    plan = convolution_plan(cfg.kwargs)
    for number, convolution in enumerate(plan):
        scale = layout.scale if number == 0 else 1.0
        x = convolved(builder, weights, f"convolutions.{2 * number}", x, convolution, scale)
        x = activated(builder, cfg.activation, x)
        height, width = ((side - convolution.kernel) // convolution.stride + 1 for side in (height, width))
    parts = [builder.reshape(x, plan[-1].filters * height * width)]
    others = {key: leaf for key, leaf in observation_leaves(space).items() if key != picture}
    parts += [encoded(builder, leaf, seen[key]) for key, leaf in others.items()]
    return dense(builder, weights, cfg, builder.joined(parts))


def remembered(builder: GraphBuilder, weights: Weights, kind: str, size: int, x: str) -> str:
    """One step of a GRU or LSTM; its state is an input and an output, cleared where an episode begins."""
    begins = builder.reshape(builder.input("is_first", np.bool_, ()), 1)
    names = ("hidden",) if kind == "gru" else ("hidden", "cell")
    before = {}
    for name in names:
        carry = builder.input(f"carry/{name}", np.float32, (size,))
        before[name] = builder.add("Where", begins, builder.constant(0.0), carry)
    seen, kept = layer(builder, weights, "input", x), layer(builder, weights, "hidden", before["hidden"])
    after = (gru_cell if kind == "gru" else lstm_cell)(builder, size, seen, kept, before)
    for name in names:
        builder.output(f"next_carry/{name}", after[name], np.float32, (size,))
    return after["hidden"]


def gru_cell(builder: GraphBuilder, size: int, seen: str, kept: str, before: Mapping[str, str]) -> dict[str, str]:
    """Gates in the order reset, update, new."""

    def gates(value: str) -> list[str]:
        return [builder.columns(value, i * size, (i + 1) * size) for i in range(3)]

    (seen_reset, seen_update, seen_new), (reset, update, new) = gates(seen), gates(kept)
    share = builder.add("Sigmoid", builder.add("Add", seen_reset, reset))
    candidate = builder.add("Tanh", builder.add("Add", seen_new, builder.add("Mul", share, new)))
    stays = builder.add("Sigmoid", builder.add("Add", seen_update, update))
    change = builder.add("Mul", stays, builder.add("Sub", before["hidden"], candidate))
    return {"hidden": builder.add("Add", candidate, change)}


def lstm_cell(builder: GraphBuilder, size: int, seen: str, kept: str, before: Mapping[str, str]) -> dict[str, str]:
    """Gates in the order input, forget, cell, output."""
    summed = builder.add("Add", seen, kept)
    enter, forget, new, leave = (builder.columns(summed, i * size, (i + 1) * size) for i in range(4))
    stays = builder.add("Mul", builder.add("Sigmoid", forget), before["cell"])
    enters = builder.add("Mul", builder.add("Sigmoid", enter), builder.add("Tanh", new))
    cell = builder.add("Add", stays, enters)
    return {"hidden": builder.add("Mul", builder.add("Sigmoid", leave), builder.add("Tanh", cell)), "cell": cell}
