"""Fully connected backbone, the twin of `rl_training.models.backbones.mlp`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rl_training.config.schema import BackboneConfig
from rl_training.jax.models.backbones.base import Network
from rl_training.jax.models.layers import ACTIVATIONS, Params, affine, encode, exact_tanh, layer_norm, linear
from rl_training.jax.pytrees import named
from rl_training.numerics.encoding import leaf_features, observation_leaves
from rl_training.numerics.initial_weights import GAINS
from rl_training.types import SpaceSpec


def dense_layers(widths: Sequence[int], cfg: BackboneConfig, *, exact: bool = False) -> Network:
    """Fully connected layers of these widths, input first; `apply` takes features (B, widths[0]).

    With `exact`, tanh is that of the array library, as in all networks after version 0.1.0.
    """
    activation = exact_tanh if exact and cfg.activation == "tanh" else ACTIVATIONS[cfg.activation]
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


def mlp(space: SpaceSpec, cfg: BackboneConfig, *, exact: bool = False) -> Network:
    """Fully connected layers over the flattened observation."""
    leaves = observation_leaves(space)
    layers = dense_layers([sum(leaf_features(leaf) for leaf in leaves.values()), *cfg.hidden_dims], cfg, exact=exact)
    return layers._replace(apply=lambda params, obs: layers.apply(params, encode(leaves, obs)))
