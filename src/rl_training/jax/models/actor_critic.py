"""Policy and state value on separate backbones or a shared one, with memory or without, as a record of pure functions.

Rows are transitions (B, ...) for networks without memory. For networks with memory they are environments with their
steps (N, T, ...): the network is unrolled over the rollout from its carry at the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.config.schema import NetworkConfig
from rl_training.jax.models.backbones.memory import (
    After,
    advance,
    carry_of,
    followed,
    initial_carry,
    joined,
    prefixed,
    stepped,
)
from rl_training.jax.models.distributions import Distribution, Parameters
from rl_training.jax.models.layers import Params, affine, linear
from rl_training.jax.models.networks import action_mask, actor_backbone, backbone
from rl_training.jax.pytrees import named
from rl_training.jax.types import Carry
from rl_training.numerics.initial_weights import POLICY_GAIN, VALUE_GAIN
from rl_training.types import SpaceSpec


class Seen(NamedTuple):
    """Observations in rows; with memory also which of them start an episode, and the carry before them."""

    obs: Any
    is_first: Any = ()
    carry: Any = ()


class ActorCritic(NamedTuple):
    """Actor and critic; their parameters are a dict with the keys `actor critic action_head value_head`."""

    init: Callable[[np.random.Generator, float], Params]
    """(rng, initial log standard deviation) -> weights"""
    initial_carry: Callable[[int], Carry]
    """(N) -> the carry at the start of N episodes, a flat dict; empty for networks without memory."""
    action: Callable[[Params, Any, Carry, Any], tuple[Parameters, Carry]]
    """(params, obs, carry, is_first) -> parameters of the action distribution, next carry; one step"""
    evaluate: Callable[[Params, Seen, Any], tuple[Any, Any, Any]]
    """(params, seen, actions) -> log-probability, entropy and value of each row"""
    values: Callable[[Params, Seen], Any]
    """(params, seen) -> values, the same as those of `evaluate`"""
    next_values: Callable[[Params, Seen, Any], Any]
    """(params, seen, next_obs) -> values of the next observations; `seen` matters only to networks with memory"""
    traced_values: Callable[[Params, Seen], tuple[Any, After | None]]
    """(params, seen) -> values, and the critic's carries along the way; None if `next_values` is to be asked."""
    values_after: Callable[[Params, Any, Any], Any]
    """(params, the critic's carry, next_obs) -> values of N observations that follow the step of that carry"""
    piece_carries: Callable[[Params, Seen, int], Carry]
    """(params, seen, length) -> the carries before each piece of `length` steps, (N * T / length) rows"""
    has_memory: bool
    features: int
    """Number of inputs of the action head."""


def actor_critic(space: SpaceSpec, cfg: NetworkConfig, distribution: Distribution) -> ActorCritic:
    """Backbones, action head and value head; the initial weights are drawn in this order, as in torch."""
    networks = {"actor": actor_backbone(space, cfg)}
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

    def first_carry(num_envs: int) -> Carry:
        return prefixed({name: initial_carry(networks[name], num_envs) for name in remembering})

    def action(params: Params, obs: Any, carry: Carry, is_first: Any) -> tuple[Parameters, Carry]:
        features, after = {}, {}
        for name in remembering:
            own = carry_of(carry, name)
            features[name], after[name] = stepped(networks[name], params[name], obs, own, is_first)
        latent = features["actor"] if "actor" in features else networks["actor"].apply(params["actor"], obs)
        return head_of(params, latent), prefixed(after)

    def along(params: Params, name: str, seen: Seen, *, trace: bool = False) -> tuple[Any, After | None]:
        own = carry_of(seen.carry, name)
        return followed(networks[name], params[name], seen.obs, own, seen.is_first, trace=trace)

    def features_of(params: Params, name: str, seen: Seen) -> Any:
        """Features (B, F); with memory, the steps of an environment one after the other."""
        if name in remembering:
            return along(params, name, seen)[0]
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
        assert network.initial_carry is None, "traced_values gives its carries"
        features = network.apply(params[valuing], single(next_obs))
        if network.step is not None:
            features = network.step(params[valuing], features_of(params, valuing, seen), features)
        return as_rows(value_of(params, features), seen)

    def traced_values(params: Params, seen: Seen) -> tuple[Any, After | None]:
        if networks[valuing].initial_carry is None:
            return values(params, seen), None
        features, after = along(params, valuing, seen, trace=True)
        return as_rows(value_of(params, features), seen), after

    def values_after(params: Params, carry: Any, next_obs: Any) -> Any:
        network = networks[valuing]
        return value_of(params, advance(network, params[valuing], carry, network.apply(params[valuing], next_obs))[0])

    def piece_carries(params: Params, seen: Seen, length: int) -> Carry:
        ends = range(length - 1, seen.is_first.shape[1] - 1, length)  # the first piece begins with the rollout
        pieces = {}
        for name in remembering:
            after = along(params, name, seen, trace=True)[1]
            assert after is not None
            carries = [carry_of(seen.carry, name), *(after(t) for t in ends)]
            pieces[name] = joined(jax.tree.map(lambda *parts: jnp.stack(parts, axis=1), *carries))
        return prefixed(pieces)

    return ActorCritic(
        init,
        first_carry,
        action,
        evaluate,
        values,
        next_values,
        traced_values,
        values_after,
        piece_carries,
        bool(remembering),
        width,
    )


def head_of(params: Params, features: Any) -> Parameters:
    head = params["action_head"]
    return Parameters(affine(head, "output", features), head.get("log_std"), features)


def value_of(params: Params, features: Any) -> Any:
    return affine(params["value_head"], "output", features)[:, 0]
