"""Policy and state value on separate backbones or a shared one, recurrent or not, as a record of pure functions.

Rows are transitions (B, ...) for networks without memory. For recurrent networks they are environments with their steps
(N, T, ...): the network is unrolled over the rollout from its memory at the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from rl_training.config.schema import NetworkConfig
from rl_training.jax.models.distributions import Distribution, Parameters
from rl_training.jax.models.layers import Params, affine, library, linear
from rl_training.jax.models.networks import Network, action_mask, backbone
from rl_training.jax.pytrees import named
from rl_training.jax.types import Carry
from rl_training.numerics.initial_weights import POLICY_GAIN, VALUE_GAIN
from rl_training.types import SpaceSpec


class Seen(NamedTuple):
    """Observations in rows; for recurrent networks also which of them start an episode, and the memory before them."""

    obs: Any
    is_first: Any = ()
    carry: Any = ()


class ActorCritic(NamedTuple):
    """Actor and critic; their parameters are a dict with the keys `actor critic action_head value_head`."""

    init: Callable[[np.random.Generator, float], Params]
    """(rng, initial log standard deviation) -> weights"""
    initial_carry: Callable[[int], Carry]
    """(N) -> the memory at the start of N episodes; empty for networks without memory."""
    action: Callable[[Params, Any, Carry, Any], tuple[Parameters, Carry]]
    """(params, obs, carry, is_first) -> parameters of the action distribution, next carry; one step"""
    evaluate: Callable[[Params, Seen, Any], tuple[Any, Any, Any]]
    """(params, seen, actions) -> log-probability, entropy and value of each row"""
    values: Callable[[Params, Seen], Any]
    """(params, seen) -> values, the same as those of `evaluate`"""
    next_values: Callable[[Params, Seen, Any], Any]
    """(params, seen, next_obs) -> values of the next observations; `seen` matters only for recurrent networks"""
    has_memory: bool
    features: int
    """Number of inputs of the action head."""


def actor_critic(space: SpaceSpec, cfg: NetworkConfig, distribution: Distribution) -> ActorCritic:
    """Backbones, action head and value head; the initial weights are drawn in this order, as in torch."""
    networks = {"actor": backbone(space, cfg.actor)}
    if not cfg.shared:
        networks["critic"] = backbone(space, cfg.critic)
    valuing, width = "actor" if cfg.shared else "critic", networks["actor"].out_features
    remembering = [name for name, network in networks.items() if network.step is not None]

    def init(rng: np.random.Generator, log_std: float) -> Params:
        params = {name: network.init(rng) for name, network in networks.items()}
        head = named("output", linear(rng, width, distribution.size, gain=POLICY_GAIN))
        if distribution.has_log_std:
            shape = (width, distribution.size) if distribution.state_dependent else (distribution.size,)
            head["log_std"] = np.full(shape, log_std, np.float32)
        params["action_head"] = head
        params["value_head"] = named("output", linear(rng, networks[valuing].out_features, 1, gain=VALUE_GAIN))
        return params

    def initial_carry(num_envs: int) -> Carry:
        return {name: np.zeros((num_envs, networks[name].out_features), np.float32) for name in remembering}

    def action(params: Params, obs: Any, carry: Carry, is_first: Any) -> tuple[Parameters, Carry]:
        carry = {name: stepped(networks[name], params[name], obs, carry[name], is_first) for name in remembering}
        features = carry["actor"] if "actor" in carry else networks["actor"].apply(params["actor"], obs)
        return head_of(params, features), carry

    def features_of(params: Params, name: str, seen: Seen) -> Any:
        """Features (B, F); of recurrent networks, with the steps of an environment one after the other."""
        if name in remembering:
            return followed(networks[name], params[name], seen.obs, seen.carry[name], seen.is_first)
        return networks[name].apply(params[name], single(seen.obs))

    def single(tree: Any) -> Any:
        """Rows as transitions (B, ...)."""
        return joined(tree) if remembering else tree

    def as_rows(column: Any, seen: Seen) -> Any:
        return column.reshape(seen.is_first.shape) if remembering else column

    def evaluate(params: Params, seen: Seen, actions: Any) -> tuple[Any, Any, Any]:
        features = {name: features_of(params, name, seen) for name in networks}
        mask = single(action_mask(seen.obs))
        logprobs, entropy = distribution.logprob_entropy(head_of(params, features["actor"]), single(actions), mask)
        values = value_of(params, features[valuing])
        return as_rows(logprobs, seen), as_rows(entropy, seen), as_rows(values, seen)

    def values(params: Params, seen: Seen) -> Any:
        return as_rows(value_of(params, features_of(params, valuing, seen)), seen)

    def next_values(params: Params, seen: Seen, next_obs: Any) -> Any:
        network = networks[valuing]
        features = network.apply(params[valuing], single(next_obs))
        if network.step is not None:
            features = network.step(params[valuing], features_of(params, valuing, seen), features)
        return as_rows(value_of(params, features), seen)

    return ActorCritic(init, initial_carry, action, evaluate, values, next_values, bool(remembering), width)


def head_of(params: Params, features: Any) -> Parameters:
    head = params["action_head"]
    return Parameters(affine(head, "output", features), head.get("log_std"), features)


def value_of(params: Params, features: Any) -> Any:
    return affine(params["value_head"], "output", features)[:, 0]


def stepped(network: Network, params: Params, obs: Any, memory: Any, is_first: Any) -> Any:
    """The memory after one more step of N environments; it is reset at the start of an episode."""
    assert network.step is not None
    memory = library(memory).where(is_first[:, None], 0.0, memory)
    return network.step(params, memory, network.apply(params, obs))


def followed(network: Network, params: Params, obs: Any, memory: Any, is_first: Any) -> Any:
    """Unroll a recurrent network: observations (N, T, ...) and the memory before them (N, H) to the memory after every
    step (N * T, H)."""
    step = network.step
    assert step is not None
    inputs = network.apply(params, joined(obs)).reshape(*is_first.shape, -1)

    def one(memory: Any, row: tuple[Any, Any]) -> tuple[Any, Any]:
        begins, seen = row
        memory = step(params, jax.numpy.where(begins[:, None], 0.0, memory), seen)
        return memory, memory

    _, memories = jax.lax.scan(one, memory, (is_first.swapaxes(0, 1), inputs.swapaxes(0, 1)))
    return joined(memories.swapaxes(0, 1))


def joined(tree: Any) -> Any:
    """(N, T, ...) to (N * T, ...), for an array or a dict of arrays."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)
