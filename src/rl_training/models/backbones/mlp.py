"""Backbones: from an observation to features. Actor, critic and Q-networks put their heads on top.

A backbone is an nn.Module built as `Backbone(observation_space, config, rng)` with `out_features`; your own is
named in the config as "package.module:Name" and needs nothing else. `MLP` can also run in NumPy over its own weights:
acting on a handful of rows then costs microseconds instead of torch's per-call overhead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.config.schema import BackboneConfig
from rl_training.models.initialization import linear
from rl_training.numerics.encoding import encode_leaf_numpy, leaf_features, observation_leaves
from rl_training.numerics.initial_weights import GAINS
from rl_training.types import (
    Array,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    LeafSpec,
    MultiDiscreteSpec,
    Obs,
    SpaceSpec,
)

TensorObs = Tensor | dict[str, Tensor]


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "identity": nn.Identity,
}
NUMPY_ACTIVATIONS: dict[type[nn.Module], Callable[[Array], Array]] = {
    nn.Tanh: lambda x: np.tanh(x, out=x),
    nn.ReLU: lambda x: np.maximum(x, 0.0, out=x),
    nn.Identity: lambda x: x,
}


def encode_leaf(leaf: LeafSpec, value: Tensor) -> Tensor:
    """Raw values (B, ...) to floats (B, features): codes are one-hot, other bytes scaled to 0..1."""
    if isinstance(leaf, DiscreteSpec):
        return F.one_hot(value.long(), leaf.n).float()
    if isinstance(leaf, MultiDiscreteSpec):
        columns = [F.one_hot(value[:, i].long(), n).float() for i, n in enumerate(leaf.nvec)]
        return torch.cat(columns, dim=1)
    flat = value.reshape(value.shape[0], -1)
    if isinstance(leaf, BoxSpec) and leaf.codes is not None:
        positions, values, scale = (torch.as_tensor(part, device=flat.device) for part in leaf.codes)
        return (flat.index_select(1, positions) == values) * scale
    return flat.float() / 255.0 if isinstance(leaf, BoxSpec) and leaf.dtype == np.uint8 else flat.float()


def dense_layers(width: int, cfg: BackboneConfig, rng: np.random.Generator) -> nn.Sequential:
    """Fully connected layers of `cfg.hidden_dims` behind `width` inputs."""
    layers: list[nn.Module] = []
    for hidden in cfg.hidden_dims:
        layers.append(linear(rng, width, hidden, kind=cfg.init, gain=GAINS.get(cfg.activation, 1.0)))
        if cfg.layer_norm:
            layers.append(nn.LayerNorm(hidden))
        layers.append(ACTIVATIONS[cfg.activation]())
        width = hidden
    return nn.Sequential(*layers)


class MLP(nn.Module):
    """Fully connected layers over the flattened observation; Dict observations through one encoder per key."""

    def __init__(self, space: SpaceSpec, cfg: BackboneConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.leaves = observation_leaves(space)
        self.named = isinstance(space, DictSpec)
        width = sum(leaf_features(leaf) for leaf in self.leaves.values())
        self.layers = dense_layers(width, cfg, rng)
        self.out_features = cfg.hidden_dims[-1] if cfg.hidden_dims else width

    def encode(self, obs: TensorObs) -> Tensor:
        """Observations to flat features (B, F)."""
        named = obs if isinstance(obs, dict) else {"obs": obs}
        parts = [encode_leaf(leaf, named[name]) for name, leaf in self.leaves.items()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def forward(self, obs: TensorObs) -> Tensor:
        return cast(Tensor, self.layers(self.encode(obs)))

    def numpy_forward(self) -> Callable[[Obs], Array] | None:
        """`forward` as a NumPy function over views of these weights; None if a layer has no NumPy form."""
        plan: list[Callable[[Array], Array]] = []
        for layer in self.layers:
            step = numpy_layer(layer)
            if step is None:
                return None
            plan.append(step)

        def run(obs: Obs) -> Array:
            named = obs if isinstance(obs, dict) else {"obs": obs}
            parts = [encode_leaf_numpy(leaf, named[name]) for name, leaf in self.leaves.items()]
            x = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
            for step in plan:
                x = step(x)
            return x

        return run


def numpy_layer(layer: nn.Module) -> Callable[[Array], Array] | None:
    """One layer as a NumPy function over views of its weights, so later updates are seen."""
    if isinstance(layer, nn.Linear):
        if layer.weight.device.type != "cpu":
            return None
        weight, bias = layer.weight.detach().numpy().T, layer.bias.detach().numpy()

        def apply(x: Array) -> Array:
            y = x @ weight
            y += bias
            return cast(Array, y)

        return apply
    return NUMPY_ACTIVATIONS.get(type(layer))
