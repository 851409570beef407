"""Networks as (init, apply) pairs on dicts of arrays; no modules, no state.

`init` draws the weights in NumPy, in the order and with the numbers of the torch twin, and names them as torch does; a
matrix is torch's transposed. `pytrees.py` turns it back for checkpoints, which thus open in either backend. `apply` is
written once for both array libraries: on NumPy arrays it runs in NumPy, which acts on a handful of rows faster than a
compiled call.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.config import BackboneConfig, NetworkConfig
from rl_training.encoding import encode_leaf_numpy, leaf_features, observation_leaves
from rl_training.jax.dist import Distribution
from rl_training.registry import check_call, import_attr
from rl_training.types import (
    ACTION_MASK,
    BoxSpec,
    ConfigError,
    DiscreteSpec,
    LeafSpec,
    MultiDiscreteSpec,
    SpaceSpec,
)
from rl_training.weights import GAINS, POLICY_GAIN, VALUE_GAIN, weight_matrix

Params = dict[str, Any]
"""Arrays by name; a network of parts holds a dict per part."""

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": lambda x: library(x).tanh(x),
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


class ActorCritic(NamedTuple):
    """Policy and state value on separate backbones or a shared one; the parts are `actor critic action_head ...`."""

    init: Callable[[np.random.Generator, float], Params]
    """(rng, first log standard deviation) -> weights"""
    action: Callable[[Params, Any], Any]
    """(params, obs) -> parameters of the action distribution"""
    values: Callable[[Params, Any], Any]
    """(params, obs) -> state values (B,)"""
    evaluate: Callable[[Params, Any, Any], tuple[Any, Any, Any]]
    """(params, obs, actions) -> log-probabilities, entropies and values, (B,) each"""


# -- layers -----------------------------------------------------------------------------------------------------------


def linear(rng: np.random.Generator, inputs: int, outputs: int, *, kind: str = "orthogonal", gain: float) -> Params:
    """Weights (inputs, outputs): the other way round XLA would transpose them at every step."""
    weight = np.ascontiguousarray(weight_matrix(rng, outputs, inputs, kind, gain).T)
    return {"weight": weight, "bias": np.zeros(outputs, np.float32)}


def named(prefix: str, params: Params) -> Params:
    return {f"{prefix}.{name}": value for name, value in params.items()}


def affine(params: Params, layer: str, x: Any) -> Any:
    return x @ params[f"{layer}.weight"] + params[f"{layer}.bias"]


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


def mlp(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """Fully connected layers over the flattened observation."""
    leaves = observation_leaves(space)
    widths = [sum(leaf_features(leaf) for leaf in leaves.values()), *cfg.hidden_dims]
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

    def apply(params: Params, obs: Any) -> Any:
        x = encode(leaves, obs)
        for i in range(len(cfg.hidden_dims)):
            x = affine(params, f"layers.{stride * i}", x)
            if cfg.layer_norm:
                x = layer_norm(params, f"layers.{stride * i + 1}", x)
            x = activation(x)
        return x

    return Network(init, apply, widths[-1])


BACKBONES: dict[str, Callable[[SpaceSpec, BackboneConfig], Network]] = {"mlp": mlp}


def backbone(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """The backbone a config names: built in, or a function (space, config) -> Network of a user's by dotted path."""
    what = f"network '{cfg.type}'"
    if cfg.type not in BACKBONES and ":" not in cfg.type:
        known = ", ".join(sorted(BACKBONES))
        raise ConfigError(f"unknown {what} for backend jax (known: {known}; your own: 'package.module:name')")
    creator = BACKBONES[cfg.type] if cfg.type in BACKBONES else import_attr(cfg.type, "network")
    check_call(creator, what, {"observation_space": space, "config": cfg})
    network = creator(space, cfg)
    if not isinstance(network, Network):
        raise ConfigError(f"{what} made a {type(network).__name__}; backend jax needs an rl_training.jax.nets.Network")
    return network


# -- compositions -----------------------------------------------------------------------------------------------------


def actor_critic(space: SpaceSpec, cfg: NetworkConfig, distribution: Distribution) -> ActorCritic:
    """Backbones, action head and value head; the first weights are drawn in this order, as in torch."""
    actor = backbone(space, cfg.actor)
    critic = actor if cfg.shared else backbone(space, cfg.critic)

    def init(rng: np.random.Generator, log_std: float) -> Params:
        params = {"actor": actor.init(rng)}
        if not cfg.shared:
            params["critic"] = critic.init(rng)
        head = named("output", linear(rng, actor.out_features, distribution.size, gain=POLICY_GAIN))
        if distribution.has_log_std:
            head["log_std"] = np.full(distribution.size, log_std, np.float32)
        params["action_head"] = head
        params["value_head"] = named("output", linear(rng, critic.out_features, 1, gain=VALUE_GAIN))
        return params

    def head_of(params: Params, features: Any) -> Any:
        return affine(params["action_head"], "output", features), params["action_head"].get("log_std")

    def value_of(params: Params, features: Any) -> Any:
        return affine(params["value_head"], "output", features)[:, 0]

    def action(params: Params, obs: Any) -> Any:
        return head_of(params, actor.apply(params["actor"], obs))

    def values(params: Params, obs: Any) -> Any:
        return value_of(params, critic.apply(params["actor" if cfg.shared else "critic"], obs))

    def evaluate(params: Params, obs: Any, actions: Any) -> tuple[Any, Any, Any]:
        features = actor.apply(params["actor"], obs)
        logprobs, entropy = distribution.logprob_entropy(head_of(params, features), actions, action_mask(obs))
        return logprobs, entropy, value_of(params, features) if cfg.shared else values(params, obs)

    return ActorCritic(init, action, values, evaluate)


def action_mask(obs: Any) -> Any:
    """The reserved mask among Dict observations, if there is one."""
    return obs.get(ACTION_MASK) if isinstance(obs, dict) else None


def runs_in_numpy(cfg: BackboneConfig) -> bool:
    """Whether a backbone's `apply` works on NumPy arrays."""
    return cfg.type == "mlp" and cfg.activation in ("tanh", "relu", "leaky_relu", "identity")
