"""Networks as (init, apply) pairs on dicts of arrays; no modules, no state.

`init` draws the weights in NumPy, in the order and with the numbers of the torch twin, and names them as torch does; a
matrix is torch's transposed. `pytrees.py` turns it back for checkpoints, which thus open in either backend. `apply` is
written once for both array libraries: on NumPy arrays it runs in NumPy, which acts on a handful of rows faster than a
compiled call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.config.schema import BackboneConfig
from rl_training.jax.checks import check_network
from rl_training.numerics.encoding import (
    encode_leaf_numpy,
    leaf_features,
    observation_leaves,
    picture_axes,
    pictures_of,
)
from rl_training.numerics.initial_weights import GAINS, weight_matrix
from rl_training.registry import check_call, did_you_mean, networks, networks_for
from rl_training.types import (
    ACTION_MASK,
    BoxSpec,
    ConfigError,
    DiscreteSpec,
    LeafSpec,
    MultiDiscreteSpec,
    SpaceSpec,
)

Params = dict[str, Any]
"""Arrays by name; a network of parts holds a dict per part."""

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": lambda x: tanh(x),
    "relu": lambda x: library(x).maximum(x, 0.0),
    "leaky_relu": lambda x: library(x).where(x > 0.0, x, 0.01 * x),
    "identity": lambda x: x,
    "elu": jax.nn.elu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "silu": jax.nn.silu,
}


def library(x: Any) -> Any:
    """NumPy for its own arrays, jax.numpy for all others."""
    return np if isinstance(x, np.ndarray) else jnp


class Network(NamedTuple):
    """One backbone: observations to features (B, out_features)."""

    init: Callable[[np.random.Generator], Params]
    apply: Callable[[Params, Any], Any]
    out_features: int
    step: Callable[[Params, Any, Any], Any] | None = None
    """Of one with memory: (params, memory (B, out_features), what `apply` gave) -> memory, which is also its features.
    Only this runs step by step; `apply` sees a whole rollout at once."""


# -- layers -----------------------------------------------------------------------------------------------------------


def linear(rng: np.random.Generator, inputs: int, outputs: int, *, kind: str = "orthogonal", gain: float) -> Params:
    """Weights (inputs, outputs): the other way round XLA would transpose them at every step."""
    weight = np.ascontiguousarray(weight_matrix(rng, outputs, inputs, kind, gain).T)
    return {"weight": weight, "bias": np.zeros(outputs, np.float32)}


def named(prefix: str, params: Params) -> Params:
    return {f"{prefix}.{name}": value for name, value in params.items()}


def affine(params: Params, layer: str, x: Any) -> Any:
    return product(x, params[f"{layer}.weight"]) + params[f"{layer}.bias"]


FEW_ROWS, FEW_INPUTS, FEW_OUTPUTS = 64, 8, 4


def product(x: Any, weight: Any) -> Any:
    """x @ weight. With the few rows of a step, XLA takes longer to call its matrix library than that to multiply; sums
    and products with vectors it compiles in place."""
    inputs, outputs = weight.shape
    if not isinstance(x, np.ndarray) and len(x) <= FEW_ROWS:
        if outputs <= FEW_OUTPUTS:
            return jnp.stack([x @ weight[:, i] for i in range(outputs)], axis=1)
        if inputs <= FEW_INPUTS:
            return sum(x[:, i, None] * weight[i] for i in range(inputs))
    return x @ weight


def tanh(x: Any) -> Any:
    return np.tanh(x) if isinstance(x, np.ndarray) else rational_tanh(x)


TANH_LIMIT = 8.0  # from here on tanh is 1 but for 2e-7
TANH_NUMERATOR = (1.529245050e-08, 2.193911688e-05, 3.574312878e-03, 1.344679494e-01, 1.0)
TANH_DENOMINATOR = (8.547690167e-07, 3.415717878e-04, 2.617480212e-02, 4.678012425e-01, 1.0)
"""x P(x^2) / Q(x^2), fitted to tanh for the smallest relative error: 7e-9 before rounding."""


@jax.custom_jvp
def rational_tanh(x: Any) -> Any:
    """As exact as `jnp.tanh` (3e-7) in half of its time, which is a twelfth of what an update of PPO takes."""
    x = jnp.clip(x, -TANH_LIMIT, TANH_LIMIT)
    squared = x * x
    return x * horner(TANH_NUMERATOR, squared) / horner(TANH_DENOMINATOR, squared)


@rational_tanh.defjvp
def rational_tanh_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    y = rational_tanh(*primals)
    return y, tangents[0] * (1.0 - y * y)


def horner(coefficients: tuple[float, ...], x: Any) -> Any:
    """A polynomial, highest power first."""
    value: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def sigmoid(x: Any) -> Any:
    return 0.5 * tanh(0.5 * x) + 0.5  # cannot overflow


def layer_norm(params: Params, layer: str, x: Any) -> Any:
    xp = library(x)
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / xp.sqrt(xp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return scaled * params[f"{layer}.weight"] + params[f"{layer}.bias"]


def encode_leaf(leaf: LeafSpec, value: Any) -> Any:
    """(B, ...) raw values to (B, features) floats: one-hot, flat, bytes scaled to 0..1."""
    if isinstance(value, np.ndarray):
        return encode_leaf_numpy(leaf, value)
    if isinstance(leaf, DiscreteSpec):
        return jax.nn.one_hot(value, leaf.n)
    if isinstance(leaf, MultiDiscreteSpec):
        return jnp.concatenate([jax.nn.one_hot(value[:, i], n) for i, n in enumerate(leaf.nvec)], axis=1)
    flat = value.reshape(value.shape[0], -1).astype(jnp.float32)
    return flat / 255.0 if isinstance(leaf, BoxSpec) and leaf.dtype == np.uint8 else flat


def encode(leaves: dict[str, LeafSpec], obs: Any) -> Any:
    """Observations to flat features (B, F), one encoder per key."""
    by_name = obs if isinstance(obs, dict) else {"obs": obs}
    parts = [encode_leaf(leaf, by_name[name]) for name, leaf in leaves.items()]
    return parts[0] if len(parts) == 1 else library(parts[0]).concatenate(parts, axis=1)


# -- backbones --------------------------------------------------------------------------------------------------------


def dense_layers(widths: Sequence[int], cfg: BackboneConfig) -> Network:
    """Fully connected layers of these widths, input first; `apply` takes features (B, widths[0])."""
    activation = ACTIVATIONS[cfg.activation]
    stride = 3 if cfg.layer_norm else 2  # torch numbers linear, norm and activation one after the other

    def init(rng: np.random.Generator) -> Params:
        params: Params = {}
        for i, (inputs, outputs) in enumerate(pairwise(widths)):
            layer = linear(rng, inputs, outputs, kind=cfg.init, gain=GAINS.get(cfg.activation, 1.0))
            params |= named(f"layers.{stride * i}", layer)
            if cfg.layer_norm:
                norm = {"weight": np.ones(outputs, np.float32), "bias": np.zeros(outputs, np.float32)}
                params |= named(f"layers.{stride * i + 1}", norm)
        return params

    def apply(params: Params, x: Any) -> Any:
        for i in range(len(widths) - 1):
            x = affine(params, f"layers.{stride * i}", x)
            if cfg.layer_norm:
                x = layer_norm(params, f"layers.{stride * i + 1}", x)
            x = activation(x)
        return x

    return Network(init, apply, widths[-1])


def mlp(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """Fully connected layers over the flattened observation."""
    leaves = observation_leaves(space)
    layers = dense_layers([sum(leaf_features(leaf) for leaf in leaves.values()), *cfg.hidden_dims], cfg)
    return layers._replace(apply=lambda params, obs: layers.apply(params, encode(leaves, obs)))


NATURE = {"channels": (32, 64, 64), "kernels": (8, 4, 3), "strides": (4, 2, 1)}
"""The convolutions of Mnih et al. 2015, for pictures of 84 x 84."""


def cnn(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """Convolutions over a picture, then fully connected layers; whatever else is observed joins between the two.
    `encoding.picture_axes` says which axis holds the channels.

    `kwargs` may give other `channels`, `kernels` and `strides`; without them they are those of the Nature paper.
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
    sizes = [(math.prod(channels), height, width)]
    for number, (filters, kernel, stride) in enumerate(plan):
        _, height, width = sizes[-1]
        if kernel > min(height, width):
            raise ConfigError(
                f"network 'cnn': convolution {number} looks at {kernel} x {kernel} of a picture that is {height} x "
                f"{width} there; set smaller network.*.kwargs.kernels and strides"
            )
        sizes.append((filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1))
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


def gru(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """Fully connected layers, then a gated recurrent unit (Cho et al. 2014, arXiv:1406.1078) as wide as the last of
    `hidden_dims`. What it remembers begins at zero with every episode."""
    if not cfg.hidden_dims:
        raise ConfigError("network 'gru' needs hidden_dims; the last of them is how many numbers it remembers")
    *before, width = cfg.hidden_dims
    encoder = mlp(space, replace(cfg, hidden_dims=tuple(before)))
    gates = 3 * width  # reset, update, new, in the order of torch

    def init(rng: np.random.Generator) -> Params:
        params = encoder.init(rng)
        for layer, inputs in (("cell.input", encoder.out_features), ("cell.hidden", width)):
            parts = [weight_matrix(rng, width, inputs, cfg.init, 1.0).T for _ in range(3)]
            weight = np.ascontiguousarray(np.concatenate(parts, axis=1))
            params |= named(layer, {"weight": weight, "bias": np.zeros(gates, np.float32)})
        return params

    def apply(params: Params, obs: Any) -> Any:
        return affine(params, "cell.input", encoder.apply(params, obs))

    def step(params: Params, memory: Any, seen: Any) -> Any:
        kept = affine(params, "cell.hidden", memory)
        reset, update = sigmoid(seen[:, :width] + kept[:, :width]), slice(width, 2 * width)
        new = tanh(seen[:, 2 * width :] + reset * kept[:, 2 * width :])
        share = sigmoid(seen[:, update] + kept[:, update])
        return new + share * (memory - new)

    return Network(init, apply, width, step)


BACKBONES: dict[str, Callable[[SpaceSpec, BackboneConfig], Network]] = {"mlp": mlp, "cnn": cnn, "gru": gru}


def without_memory(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """A backbone for algorithms that learn from single transitions."""
    network = backbone(space, cfg)
    if network.step is not None:
        raise ConfigError(
            f"network '{cfg.type}' has memory, which with backend: jax only ppo and reinforce learn to use"
        )
    return network


def backbone(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """The backbone a config names: built in, or a function (space, config) -> Network of a user's by dotted path."""
    what = f"network '{cfg.type}'"
    if cfg.type not in BACKBONES and ":" not in cfg.type:
        raise ConfigError(f"unknown {what}{did_you_mean(cfg.type, BACKBONES)} ({networks_for('jax')})")
    creator = BACKBONES[cfg.type] if cfg.type in BACKBONES else networks.get(cfg.type)
    check_call(creator, what, {"observation_space": space, "config": cfg})
    network = creator(space, cfg)
    if not isinstance(network, Network):
        raise ConfigError(
            f"{what} made a {type(network).__name__}; backend jax needs an rl_training.jax.models.networks.Network"
        )
    if cfg.type not in BACKBONES:
        check_network(network, space, what)
    return network


def action_mask(obs: Any) -> Any:
    """The reserved mask among Dict observations, if there is one."""
    return obs.get(ACTION_MASK) if isinstance(obs, dict) else None


def runs_in_numpy(cfg: BackboneConfig) -> bool:
    """Whether a backbone's `apply` works on NumPy arrays."""
    return cfg.type in ("mlp", "gru") and cfg.activation in ("tanh", "relu", "leaky_relu", "identity")
