"""Layers, activations and observation encoders of the JAX networks: pure functions on dicts of arrays.

`linear` draws its weights in NumPy, in the order and with the numbers of the torch twin; a matrix is torch's
transposed. The functions that compute are written once for both array libraries: NumPy arrays are computed in NumPy,
which for a handful of rows is faster than a compiled call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.numerics.encoding import encode_leaf_numpy
from rl_training.numerics.initial_weights import Draw, weight_matrix
from rl_training.types import BoxSpec, DiscreteSpec, LeafSpec, MultiDiscreteSpec

Params = dict[str, Any]
"""Arrays by name; a network with several parts holds one dict per part."""

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
    """The array library of `x`: NumPy for NumPy arrays, jax.numpy for everything else."""
    return np if isinstance(x, np.ndarray) else jnp


# -- linear layers ----------------------------------------------------------------------------------------------------


def linear(
    rng: np.random.Generator,
    inputs: int,
    outputs: int,
    *,
    kind: str = "orthogonal",
    gain: float,
    draw: Draw = weight_matrix,
) -> Params:
    """Initial weight (inputs, outputs) and zero bias. Stored the other way round, XLA would transpose at every step."""
    weight = np.ascontiguousarray(draw(rng, outputs, inputs, kind, gain).T)
    return {"weight": weight, "bias": np.zeros(outputs, np.float32)}


def affine(params: Params, layer: str, x: Any) -> Any:
    """x @ weight + bias of the named layer."""
    return product(x, params[f"{layer}.weight"]) + params[f"{layer}.bias"]


FEW_ROWS, FEW_INPUTS, FEW_OUTPUTS = 64, 8, 4


def product(x: Any, weight: Any) -> Any:
    """x @ weight. For the few rows of one environment step, XLA's call to its matrix library costs more than the
    multiplication; products with vectors and sums are compiled inline instead."""
    inputs, outputs = weight.shape
    if not isinstance(x, np.ndarray) and len(x) <= FEW_ROWS:
        if outputs <= FEW_OUTPUTS:
            return jnp.stack([x @ weight[:, i] for i in range(outputs)], axis=1)
        if inputs <= FEW_INPUTS:
            return sum(x[:, i, None] * weight[i] for i in range(inputs))
    return x @ weight


def layer_norm(params: Params, layer: str, x: Any) -> Any:
    """Layer normalisation over the last axis, with torch's epsilon of 1e-5."""
    xp = library(x)
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / xp.sqrt(xp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return scaled * params[f"{layer}.weight"] + params[f"{layer}.bias"]


# -- activations ------------------------------------------------------------------------------------------------------


def tanh(x: Any) -> Any:
    """The tanh of the networks of version 0.1.0, in either library; see `rational_tanh`."""
    return np.tanh(x) if isinstance(x, np.ndarray) else rational_tanh(x)


TANH_LIMIT = 8.0  # beyond this, tanh differs from 1 by less than 2e-7
TANH_NUMERATOR = (1.529245050e-08, 2.193911688e-05, 3.574312878e-03, 1.344679494e-01, 1.0)
TANH_DENOMINATOR = (8.547690167e-07, 3.415717878e-04, 2.617480212e-02, 4.678012425e-01, 1.0)
"""x P(x^2) / Q(x^2), fitted to tanh for the smallest relative error: 7e-9 before rounding."""


@jax.custom_jvp
def rational_tanh(x: Any) -> Any:
    """tanh as a rational function: as accurate as `jnp.tanh` (3e-7) in half the time, a twelfth of a PPO update.

    The networks of version 0.1.0 (mlp, cnn, gru) keep it, so that their runs keep their bits. New networks use
    `jnp.tanh`.
    """
    x = jnp.clip(x, -TANH_LIMIT, TANH_LIMIT)
    squared = x * x
    return x * horner(TANH_NUMERATOR, squared) / horner(TANH_DENOMINATOR, squared)


@rational_tanh.defjvp
def rational_tanh_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    """The derivative of tanh, 1 - tanh^2, from the value already computed."""
    y = rational_tanh(*primals)
    return y, tangents[0] * (1.0 - y * y)


def horner(coefficients: tuple[float, ...], x: Any) -> Any:
    """A polynomial by Horner's scheme; the coefficient of the highest power comes first."""
    value: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def sigmoid(x: Any) -> Any:
    """The logistic function by way of tanh, which cannot overflow."""
    return 0.5 * tanh(0.5 * x) + 0.5


def exact_tanh(x: Any) -> Any:
    """The tanh of the array library of `x`, for networks after version 0.1.0."""
    return library(x).tanh(x)


def exact_sigmoid(x: Any) -> Any:
    """The logistic function by way of `exact_tanh`."""
    return 0.5 * exact_tanh(0.5 * x) + 0.5


# -- observations -----------------------------------------------------------------------------------------------------


def encode_leaf(leaf: LeafSpec, value: Any) -> Any:
    """(B, ...) raw values to (B, features) floats: codes one-hot, boxes flattened, other bytes scaled to 0..1."""
    if isinstance(value, np.ndarray):
        return encode_leaf_numpy(leaf, value)
    if isinstance(leaf, DiscreteSpec):
        return jax.nn.one_hot(value, leaf.n)
    if isinstance(leaf, MultiDiscreteSpec):
        return jnp.concatenate([jax.nn.one_hot(value[:, i], n) for i, n in enumerate(leaf.nvec)], axis=1)
    flat = value.reshape(value.shape[0], -1)
    if isinstance(leaf, BoxSpec) and leaf.codes is not None:
        return (flat[:, leaf.codes.positions] == leaf.codes.values) * leaf.codes.scale
    numbers = flat.astype(jnp.float32)
    return numbers / 255.0 if isinstance(leaf, BoxSpec) and leaf.dtype == np.uint8 else numbers


def encode(leaves: dict[str, LeafSpec], obs: Any) -> Any:
    """Observations to flat features (B, F), one encoder per key."""
    by_name = obs if isinstance(obs, dict) else {"obs": obs}
    parts = [encode_leaf(leaf, by_name[name]) for name, leaf in leaves.items()]
    return parts[0] if len(parts) == 1 else library(parts[0]).concatenate(parts, axis=1)
