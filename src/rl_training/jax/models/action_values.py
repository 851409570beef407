"""Q-networks: values of all actions at once (DQN, PQN), or of a given action by an ensemble (SAC, TD3); actors.

The twins of `models/action_values.py` and `models/critics.py`, with the same initial weights under the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.jax.models.layers import ACTIVATIONS, Params, affine, encode, layer_norm, linear
from rl_training.jax.models.networks import actor_backbone, backbone, is_flat, without_memory
from rl_training.jax.pytrees import below, named
from rl_training.numerics.encoding import leaf_features, observation_leaves
from rl_training.numerics.initial_weights import GAINS, VALUE_GAIN, weight_matrix
from rl_training.types import SpaceSpec


class ActionValues(NamedTuple):
    """A Q-network with one output per action."""

    init: Callable[[np.random.Generator], Params]
    apply: Callable[[Params, Any], Any]
    """(params, obs) -> values (B, A)"""


def action_values(space: SpaceSpec, actions: int, cfg: BackboneConfig, *, dueling: bool = False) -> ActionValues:
    """A backbone and a head; with `dueling`, separate heads for state value and advantages (Wang et al. 2016)."""
    network = without_memory(backbone(space, cfg), cfg)

    def init(rng: np.random.Generator) -> Params:
        params = named("backbone", network.init(rng))
        params |= named("advantage", linear(rng, network.out_features, actions, gain=VALUE_GAIN))
        return params | (named("value", linear(rng, network.out_features, 1, gain=VALUE_GAIN)) if dueling else {})

    def apply(params: Params, obs: Any) -> Any:
        features = network.apply(below(params, "backbone"), obs)
        advantages = affine(params, "advantage", features)
        if not dueling:
            return advantages
        return affine(params, "value", features) + advantages - advantages.mean(1, keepdims=True)

    return ActionValues(init, apply)


class Critics(NamedTuple):
    """An ensemble of E critics Q(s, a)."""

    init: Callable[[np.random.Generator], Params]
    apply: Callable[[Params, Any, Any], Any]
    """(params, obs, actions) -> values (E, B)"""


def critics(space: SpaceSpec, action_size: int, cfg: BackboneConfig, members: int) -> Critics:
    """E networks of one shape. A backbone other than a flat `mlp` is copied for each, followed by one more layer."""
    is_mlp = is_flat(space, cfg)
    own = None if is_mlp else without_memory(backbone(space, cfg), cfg)
    leaves = observation_leaves(space)
    features = sum(map(leaf_features, leaves.values())) if own is None else own.out_features
    hidden_dims = cfg.hidden_dims if is_mlp else cfg.hidden_dims[-1:]
    widths = [features + action_size, *hidden_dims]
    activation, stride = ACTIVATIONS[cfg.activation], 3 if cfg.layer_norm else 2

    def ensemble(rng: np.random.Generator, inputs: int, outputs: int, kind: str, gain: float) -> Params:
        weights = [weight_matrix(rng, outputs, inputs, kind, gain).T for _ in range(members)]
        return {"weight": np.stack(weights), "bias": np.zeros((members, 1, outputs), np.float32)}

    def init(rng: np.random.Generator) -> Params:
        params: Params = {}
        for e in range(0 if own is None else members):
            params |= named(f"backbones.{e}", own.init(rng))  # type: ignore[union-attr]
        for i, (inputs, outputs) in enumerate(pairwise(widths)):
            gain = GAINS.get(cfg.activation, 1.0)
            params |= named(f"layers.{stride * i}", ensemble(rng, inputs, outputs, cfg.init, gain))
            if cfg.layer_norm:
                norm = {"weight": np.ones(outputs, np.float32), "bias": np.zeros(outputs, np.float32)}
                params |= named(f"layers.{stride * i + 1}", norm)
        return params | named("output", ensemble(rng, widths[-1], 1, "orthogonal", VALUE_GAIN))

    def member(params: Params, e: int, obs: Any, actions: Any) -> Any:
        if own is None:
            seen = encode(leaves, obs)
        else:
            seen = own.apply(below(params, f"backbones.{e}"), obs)
        x = jnp.concatenate([seen, actions], axis=1)
        for i in range(len(hidden_dims)):
            x = x @ params[f"layers.{stride * i}.weight"][e] + params[f"layers.{stride * i}.bias"][e]
            if cfg.layer_norm:
                x = layer_norm(params, f"layers.{stride * i + 1}", x)
            x = activation(x)
        return (x @ params["output.weight"][e] + params["output.bias"][e])[:, 0]

    def apply(params: Params, obs: Any, actions: Any) -> Any:
        actions = actions.reshape(actions.shape[0], -1)
        # one product per member: on a CPU, XLA's batched product is slower than the plain one
        return jnp.stack([member(params, e, obs, actions) for e in range(members)])

    return Critics(init, apply)


class StateValue(NamedTuple):
    """A value network V(s), the twin of `models.networks.ValueNetwork`."""

    init: Callable[[np.random.Generator], Params]
    apply: Callable[[Params, Any], Any]
    """(params, obs) -> values (B,)"""


def state_value(space: SpaceSpec, cfg: BackboneConfig) -> StateValue:
    """A backbone and a head with one output."""
    network = without_memory(backbone(space, cfg), cfg)

    def init(rng: np.random.Generator) -> Params:
        params = named("backbone", network.init(rng))
        return params | named("head.output", linear(rng, network.out_features, 1, gain=VALUE_GAIN))

    def apply(params: Params, obs: Any) -> Any:
        return affine(params, "head.output", network.apply(below(params, "backbone"), obs))[:, 0]

    return StateValue(init, apply)


class Actor(NamedTuple):
    """A backbone and one linear layer."""

    init: Callable[[np.random.Generator], Params]
    apply: Callable[[Params, Any], Any]
    """(params, obs) -> outputs (B, size)"""


def actor(space: SpaceSpec, size: int, cfg: NetworkConfig, *, gain: float, layer: str = "output") -> Actor:
    """The actor's backbone and a linear output layer, which has the name `layer` in the torch twin."""
    network = without_memory(actor_backbone(space, cfg), cfg.actor)

    def init(rng: np.random.Generator) -> Params:
        params = named("backbone", network.init(rng))
        return params | named(layer, linear(rng, network.out_features, size, gain=gain))

    def apply(params: Params, obs: Any) -> Any:
        return affine(params, layer, network.apply(below(params, "backbone"), obs))

    return Actor(init, apply)
