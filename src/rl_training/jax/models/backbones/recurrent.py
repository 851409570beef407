"""Recurrent backbone: fully connected layers, then a gated recurrent unit (Cho et al. 2014, arXiv:1406.1078)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rl_training.config.schema import BackboneConfig
from rl_training.jax.models.backbones.base import Network
from rl_training.jax.models.backbones.mlp import mlp
from rl_training.jax.models.layers import Params, affine, sigmoid, tanh
from rl_training.jax.pytrees import named
from rl_training.numerics.initial_weights import weight_matrix
from rl_training.types import ConfigError, SpaceSpec


def gru(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """A GRU as wide as the last of `hidden_dims`, behind fully connected layers of the other widths. Its hidden state
    is zero at the start of every episode."""
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
