"""The network that a config names, as an (init, apply) pair on dicts of arrays; no modules, no state.

Networks of your own import what they need from here: `Network`, `linear`, `named`, `affine`. Weights are named as in
the torch twin, so that a checkpoint opens in either backend (`pytrees.py` transposes the matrices).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rl_training.config.schema import BackboneConfig
from rl_training.jax.checks import check_network
from rl_training.jax.models.backbones import Network, cnn, gru, mlp
from rl_training.jax.models.layers import ACTIVATIONS, FEW_OUTPUTS, Params, affine, encode, library, linear
from rl_training.jax.pytrees import named
from rl_training.registry import check_call, did_you_mean, networks, networks_for
from rl_training.types import ACTION_MASK, ConfigError, SpaceSpec

__all__ = [
    "ACTIVATIONS",
    "FEW_OUTPUTS",
    "Network",
    "Params",
    "action_mask",
    "affine",
    "backbone",
    "cnn",
    "encode",
    "gru",
    "library",
    "linear",
    "mlp",
    "named",
    "runs_in_numpy",
    "without_memory",
]

BACKBONES: dict[str, Callable[[SpaceSpec, BackboneConfig], Network]] = {"mlp": mlp, "cnn": cnn, "gru": gru}


def backbone(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """The backbone a config names: built in, or your own function (space, config) -> Network by dotted path."""
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


def without_memory(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """A backbone for algorithms that learn from single transitions; ConfigError for a recurrent one."""
    network = backbone(space, cfg)
    if network.step is not None:
        raise ConfigError(
            f"network '{cfg.type}' has memory, which with backend: jax only ppo and reinforce learn to use"
        )
    return network


def action_mask(obs: Any) -> Any:
    """The action mask among Dict observations; None without one."""
    return obs.get(ACTION_MASK) if isinstance(obs, dict) else None


def runs_in_numpy(cfg: BackboneConfig) -> bool:
    """Whether a backbone's `apply` works on NumPy arrays."""
    return cfg.type in ("mlp", "gru") and cfg.activation in ("tanh", "relu", "leaky_relu", "identity")
