"""RMS norm, normed and block-linear layers as pure functions on flat dicts of arrays.

Parameters have the names of the torch twin's and are drawn from the same NumPy generator in the same order; matrices of
linear layers are the torch ones transposed. NumPy arrays are computed in NumPy, which is what acting for a few
environments wants.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from rl_training.jax.models.layers import Params, exact_sigmoid, library
from rl_training.numerics.initial_weights import truncated_normal
from rl_training.types import ConfigError

RMS_EPS = 1e-4
"""Added to the mean square, as in DreamerV3."""


def scoped(name: str, params: Params) -> Params:
    """The same parameters under longer names."""
    return {f"{name}.{key}": value for key, value in params.items()}


def part(params: Params, name: str) -> Params:
    """The parameters below `name`, with the rest of their names."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in params.items() if key.startswith(prefix)}


# -- initial weights, in NumPy ----------------------------------------------------------------------------------------


def dense_init(rng: np.random.Generator, inputs: int, outputs: int, scale: float = 1.0) -> Params:
    """Weight (inputs, outputs) and zero bias of a linear layer."""
    weight = np.ascontiguousarray(truncated_normal(rng, (outputs, inputs), inputs, scale).T)
    return {"weight": weight, "bias": np.zeros(outputs, np.float32)}


def normed_layer_init(rng: np.random.Generator, inputs: int, outputs: int) -> Params:
    """A linear layer and the scale of its norm."""
    return {**scoped("linear", dense_init(rng, inputs, outputs)), "norm.scale": np.ones(outputs, np.float32)}


def normed_mlp_init(
    rng: np.random.Generator, inputs: int, units: int, layers: int, outputs: int | None = None, scale: float = 1.0
) -> Params:
    """`layers` normed layers and, where `outputs` is given, a linear layer behind them."""
    params: Params = {}
    for layer in range(layers):
        params |= scoped(f"layers.{layer}", normed_layer_init(rng, inputs if layer == 0 else units, units))
    if outputs is not None:
        params |= scoped("output", dense_init(rng, units if layers else inputs, outputs, scale))
    return params


def block_linear_init(rng: np.random.Generator, inputs: int, outputs: int, blocks: int) -> Params:
    """Weights (G, inputs / G, outputs / G), with the whole input as fan-in, and zero bias."""
    if inputs % blocks or outputs % blocks:
        raise ConfigError(f"{blocks} blocks divide neither or only one of {inputs} inputs and {outputs} outputs")
    shape = (blocks, inputs // blocks, outputs // blocks)
    return {"weight": truncated_normal(rng, shape, inputs), "bias": np.zeros(outputs, np.float32)}


# -- computation ------------------------------------------------------------------------------------------------------


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return exact_sigmoid(x) if isinstance(x, np.ndarray) else jax.nn.sigmoid(x)


def silu(x: Any) -> Any:
    """x sigmoid(x)."""
    return x * exact_sigmoid(x) if isinstance(x, np.ndarray) else jax.nn.silu(x)


def rms_norm(x: Any, scale: Any) -> Any:
    """x / sqrt(mean(x^2) + 1e-4) over the last axis, times a scale."""
    mean_square = library(x).square(x).mean(-1, keepdims=True) + RMS_EPS
    inverse = 1.0 / np.sqrt(mean_square) if isinstance(x, np.ndarray) else jax.lax.rsqrt(mean_square)
    return x * inverse * scale


def dense(params: Params, x: Any) -> Any:
    return x @ params["weight"] + params["bias"]


def normed_layer(params: Params, x: Any) -> Any:
    """Linear, RMS norm, SiLU."""
    return silu(rms_norm(dense(part(params, "linear"), x), params["norm.scale"]))


def normed_mlp(params: Params, x: Any) -> Any:
    """Normed layers `layers.0`, `layers.1`, ... and, where there is one, the linear layer `output`."""
    layer = 0
    while f"layers.{layer}.norm.scale" in params:
        x = normed_layer(part(params, f"layers.{layer}"), x)
        layer += 1
    return dense(part(params, "output"), x) if "output.weight" in params else x


def block_product(x: Any, weight: Any) -> Any:
    """(B, inputs) times a block-diagonal matrix (G, inputs / G, outputs / G): group-major, one batched product."""
    blocks, inputs, _ = weight.shape
    if blocks == 1:
        return x @ weight[0]
    grouped = x.reshape(len(x), blocks, inputs).transpose(1, 0, 2)
    return library(x).matmul(grouped, weight).transpose(1, 0, 2).reshape(len(x), -1)


def block_linear(params: Params, x: Any) -> Any:
    """A block-linear layer: (B, inputs) to (B, outputs)."""
    return block_product(x, params["weight"]) + params["bias"]
