"""The network that a config names, as an (init, apply) pair on dicts of arrays; no modules, no state.

Networks of your own import what they need from here: `Network`, `linear`, `named`, `affine`. Weights are named as in
the torch twin, so that a checkpoint opens in either backend (`pytrees.py` transposes the matrices).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rl_training.config.networks import COMPOSED, actor_space, encoders_of, spelt_out
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.jax.checks import check_network
from rl_training.jax.models.backbones import Network, cnn, composed, gru, mlp
from rl_training.jax.models.layers import ACTIVATIONS, FEW_OUTPUTS, Params, affine, encode, library, linear
from rl_training.jax.pytrees import named
from rl_training.registry import check_call, did_you_mean, networks, networks_for
from rl_training.types import ACTION_MASK, ConfigError, DictSpec, SpaceSpec

__all__ = [
    "ACTIVATIONS",
    "FEW_OUTPUTS",
    "Network",
    "Params",
    "action_mask",
    "actor_backbone",
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
    "seeing",
    "without_memory",
]

BACKBONES: dict[str, Callable[[SpaceSpec, BackboneConfig], Network]] = {"cnn": cnn, **dict.fromkeys(COMPOSED, composed)}


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


def actor_backbone(space: SpaceSpec, network: NetworkConfig) -> Network:
    """The actor's backbone, which is called with all observations and sees those that are not for critics only."""
    return seeing(space, actor_space(space, network), network.actor)


def seeing(space: SpaceSpec, visible: SpaceSpec, cfg: BackboneConfig) -> Network:
    """A backbone that is called with all observations of `space` and sees the part of them that `visible` has."""
    body = backbone(visible, cfg)
    if visible is space or not isinstance(visible, DictSpec):
        return body
    shown = tuple(visible.spaces)
    return body._replace(apply=lambda params, obs: body.apply(params, {name: obs[name] for name in shown}))


def without_memory(network: Network, cfg: BackboneConfig) -> Network:
    """The backbone itself, for algorithms that learn from single transitions; ConfigError for one with memory."""
    if network.step is not None:
        name = cfg.memory.type if cfg.type == "mlp" else cfg.type
        raise ConfigError(f"network '{name}' has memory, which with backend: jax only ppo and reinforce learn to use")
    if cfg.encoder.random_shift:
        raise ConfigError("encoder.random_shift is not available with backend: jax; use backend: torch")
    return network


def action_mask(obs: Any) -> Any:
    """The action mask among Dict observations; None without one."""
    return obs.get(ACTION_MASK) if isinstance(obs, dict) else None


def is_flat(space: SpaceSpec, cfg: BackboneConfig) -> bool:
    """Whether a backbone is an MLP over the flattened observation: no convolutions, no memory, nothing of your own."""
    return cfg.type == "mlp" and cfg.memory.type == "none" and not encoders_of(space, cfg.encoder)


def runs_in_numpy(space: SpaceSpec, cfg: BackboneConfig) -> bool:
    """Whether a backbone's `apply` and `step` work on NumPy arrays."""
    if cfg.type not in COMPOSED or cfg.activation not in ("tanh", "relu", "leaky_relu", "identity"):
        return False
    return spelt_out(cfg).memory.type != "transformer" and not encoders_of(space, spelt_out(cfg).encoder)
