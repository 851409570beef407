"""Builds the backbone that a config names: composed of encoder, layers and memory, registered, or your own class."""

from __future__ import annotations

from typing import cast

import numpy as np
from torch import nn

from rl_training.config.networks import COMPOSED, actor_space, encoders_of, spelt_out
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.models.backbones.cnn import CNN
from rl_training.models.backbones.composed import Backbone, RememberingBackbone
from rl_training.models.backbones.filtered import filtered
from rl_training.models.backbones.mlp import MLP
from rl_training.registry import check_call, networks
from rl_training.types import (
    ConfigError,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
)


def build_backbone(space: SpaceSpec, cfg: BackboneConfig, rng: np.random.Generator) -> nn.Module:
    """The backbone a config names: built in, registered, or your own class by dotted path."""
    if cfg.type in COMPOSED:
        cfg = spelt_out(cfg)
        if cfg.memory.type != "none":
            return RememberingBackbone(space, cfg, rng)
        return (Backbone if encoders_of(space, cfg.encoder) else MLP)(space, cfg, rng)
    if cfg.type == "cnn":
        return CNN(space, cfg, rng)
    what = f"network '{cfg.type}'"
    creator = networks.get(cfg.type)
    check_call(creator, what, {"observation_space": space, "config": cfg, "rng": rng})
    backbone = creator(space, cfg, rng)
    if not isinstance(backbone, nn.Module):
        raise ConfigError(f"{what} made a {type(backbone).__name__}; it must be a torch.nn.Module")
    if not isinstance(getattr(backbone, "out_features", None), int):
        raise ConfigError(f"{what} has no out_features; set self.out_features to the width of what forward() returns")
    return backbone


def build_actor_backbone(space: SpaceSpec, network: NetworkConfig, rng: np.random.Generator) -> nn.Module:
    """The actor's backbone, which is called with all observations and sees those that are not for critics only."""
    return build_seeing(space, actor_space(space, network), network.actor, rng)


def build_seeing(space: SpaceSpec, visible: SpaceSpec, cfg: BackboneConfig, rng: np.random.Generator) -> nn.Module:
    """A backbone that is called with observations of `space` and sees those of `visible`."""
    backbone = build_backbone(visible, cfg, rng)
    if visible is space or not isinstance(visible, DictSpec) or cfg.type in (*COMPOSED, "cnn"):
        return backbone  # the package's own backbones read the keys of their space and no others
    return filtered(backbone, visible)


def width(backbone: nn.Module) -> int:
    """Number of features that a backbone returns."""
    return cast(int, backbone.out_features)


def describe_space(leaf: SpaceSpec) -> str:
    """A space in words, for messages."""
    if isinstance(leaf, DiscreteSpec):
        return f"Discrete({leaf.n})"
    if isinstance(leaf, MultiDiscreteSpec):
        return f"MultiDiscrete({list(leaf.nvec)})"
    if isinstance(leaf, MultiBinarySpec):
        return f"MultiBinary({leaf.n})"
    if isinstance(leaf, DictSpec):
        return "Dict(" + ", ".join(f"{name}: {describe_space(inner)}" for name, inner in leaf.spaces.items()) + ")"
    return f"Box{leaf.shape}"
