"""Recurrent memories: gated recurrent unit and long short-term memory, behind fully connected layers or an encoder.

The products with the inputs of a whole rollout are one matrix product (`apply`); only what depends on the step before
runs step by step. Weight names and the order of the gates are those of the torch twins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rl_training.config.schema import BackboneConfig
from rl_training.jax.models.backbones.base import Network
from rl_training.jax.models.backbones.mlp import mlp
from rl_training.jax.models.layers import Params, affine, exact_sigmoid, exact_tanh, sigmoid, tanh
from rl_training.jax.pytrees import named
from rl_training.numerics.initial_weights import weight_matrix
from rl_training.types import ConfigError, SpaceSpec


def gru(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """A GRU as wide as the last of `hidden_dims`, behind fully connected layers of the other widths. Its hidden state
    is zero at the start of every episode."""
    if not cfg.hidden_dims:
        raise ConfigError("network 'gru' needs hidden_dims; the last of them is how many numbers it remembers")
    *before, width = cfg.hidden_dims
    return gru_behind(mlp(space, replace(cfg, hidden_dims=tuple(before))), width, cfg.init)


def gates(rng: np.random.Generator, inputs: int, size: int, count: int, kind: str) -> Params:
    """Weights of the layers `cell.input` and `cell.hidden`: `count` gates, each a matrix drawn by itself; biases 0."""
    params: Params = {}
    for layer, width in (("cell.input", inputs), ("cell.hidden", size)):
        parts = [weight_matrix(rng, size, width, kind, 1.0).T for _ in range(count)]
        weight = np.ascontiguousarray(np.concatenate(parts, axis=1))
        params |= named(layer, {"weight": weight, "bias": np.zeros(count * size, np.float32)})
    return params


def gru_behind(encoder: Network, size: int, kind: str) -> Network:
    """A gated recurrent unit (Cho et al. 2014, arXiv:1406.1078), gates in the order reset, update, new."""

    def init(rng: np.random.Generator) -> Params:
        return {**encoder.init(rng), **gates(rng, encoder.out_features, size, 3, kind)}

    def apply(params: Params, obs: Any) -> Any:
        return affine(params, "cell.input", encoder.apply(params, obs))

    def step(params: Params, memory: Any, seen: Any) -> Any:
        kept = affine(params, "cell.hidden", memory)
        reset, update = sigmoid(seen[:, :size] + kept[:, :size]), slice(size, 2 * size)
        new = tanh(seen[:, 2 * size :] + reset * kept[:, 2 * size :])
        share = sigmoid(seen[:, update] + kept[:, update])
        return new + share * (memory - new)

    return Network(init, apply, size, step)


def lstm_behind(encoder: Network, size: int, kind: str) -> Network:
    """Long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order input, forget, cell, output."""

    def init(rng: np.random.Generator) -> Params:
        return {**encoder.init(rng), **gates(rng, encoder.out_features, size, 4, kind)}

    def apply(params: Params, obs: Any) -> Any:
        return affine(params, "cell.input", encoder.apply(params, obs))

    def step(params: Params, carry: Any, seen: Any) -> tuple[Any, Any]:
        summed = seen + affine(params, "cell.hidden", carry["hidden"])
        enter, forget, new, leave = (summed[:, i * size : (i + 1) * size] for i in range(4))
        cell = exact_sigmoid(forget) * carry["cell"] + exact_sigmoid(enter) * exact_tanh(new)
        hidden = exact_sigmoid(leave) * exact_tanh(cell)
        return hidden, {"hidden": hidden, "cell": cell}

    def initial_carry(num_envs: int) -> Any:
        return {name: np.zeros((num_envs, size), np.float32) for name in ("hidden", "cell")}

    return Network(init, apply, size, step, initial_carry)
