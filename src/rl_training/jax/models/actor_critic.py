"""Policy and state value on separate backbones or a shared one, with memory or without, as a record of pure functions.

Rows are transitions (B, ...) for networks without memory. For networks with memory they are environments with their
steps (N, T, ...): the network is unrolled over the rollout from its carry at the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.config.schema import NetworkConfig
from rl_training.jax.models.backbones.base import Network
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
from rl_training.jax.models.networks import action_mask, actor_backbone, seeing
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


def actor_critic(
    space: SpaceSpec, cfg: NetworkConfig, distribution: Distribution, critic_space: SpaceSpec | None = None
) -> ActorCritic:
    """Backbones, action head and value head; the initial weights are drawn in this order, as in torch. `critic_space`
    is the part of the observations that the critic sees; None shows it everything."""
    networks = {"actor": actor_backbone(space, cfg)}
    if not cfg.shared:
        networks["critic"] = seeing(space, space if critic_space is None else critic_space, cfg.critic)
    parts = Parts(networks, distribution, valuing="actor" if cfg.shared else "critic")
    return ActorCritic(
        parts.init,
        parts.initial_carry,
        parts.action,
        parts.evaluate,
        parts.values,
        parts.next_values,
        parts.traced_values,
        parts.values_after,
        parts.piece_carries,
        bool(parts.remembering),
        parts.width,
    )


@dataclass(frozen=True, eq=False)
class Parts:
    """Backbones by name and the distribution of actions; the functions of an `ActorCritic` are methods over them."""

    networks: dict[str, Network]
    distribution: Distribution
    valuing: str
    """The backbone that values are read from."""

    @property
    def width(self) -> int:
        return self.networks["actor"].out_features

    @property
    def critic(self) -> Network:
        return self.networks[self.valuing]

    @property
    def remembering(self) -> list[str]:
        """Backbones with memory."""
        return [name for name, network in self.networks.items() if network.step is not None]

    def init(self, rng: np.random.Generator, log_std: float) -> Params:
        params = {name: network.init(rng) for name, network in self.networks.items()}
        distribution, width = self.distribution, self.width
        head = named("output", linear(rng, width, distribution.size, gain=POLICY_GAIN))
        if distribution.has_log_std:
            shape = (width, distribution.size) if distribution.state_dependent else (distribution.size,)
            head["log_std"] = np.full(shape, log_std, np.float32)
        params["action_head"] = head
        params["value_head"] = named("output", linear(rng, self.critic.out_features, 1, gain=VALUE_GAIN))
        return params

    # -- acting -------------------------------------------------------------------------------------------------------

    def initial_carry(self, num_envs: int) -> Carry:
        return prefixed({name: initial_carry(self.networks[name], num_envs) for name in self.remembering})

    def action(self, params: Params, obs: Any, carry: Carry, is_first: Any) -> tuple[Parameters, Carry]:
        features, after = {}, {}
        for name in self.remembering:
            own = carry_of(carry, name)
            features[name], after[name] = stepped(self.networks[name], params[name], obs, own, is_first)
        latent = features["actor"] if "actor" in features else self.networks["actor"].apply(params["actor"], obs)
        return head_of(params, latent), prefixed(after)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def single(self, tree: Any) -> Any:
        """Rows as transitions (B, ...)."""
        return joined(tree) if self.remembering else tree

    def as_rows(self, column: Any, seen: Seen) -> Any:
        return column.reshape(seen.is_first.shape) if self.remembering else column

    def along(self, params: Params, name: str, seen: Seen, *, trace: bool = False) -> tuple[Any, After | None]:
        """Features of a backbone with memory along the steps, and its carries if they are to be traced."""
        own = carry_of(seen.carry, name)
        return followed(self.networks[name], params[name], seen.obs, own, seen.is_first, trace=trace)

    def features_of(self, params: Params, name: str, seen: Seen) -> Any:
        """Features (B, F); with memory, the steps of an environment one after the other."""
        if name in self.remembering:
            return self.along(params, name, seen)[0]
        return self.networks[name].apply(params[name], self.single(seen.obs))

    # -- learning -----------------------------------------------------------------------------------------------------

    def evaluate(self, params: Params, seen: Seen, actions: Any) -> tuple[Any, Any, Any]:
        features = {name: self.features_of(params, name, seen) for name in self.networks}
        mask, taken = self.single(action_mask(seen.obs)), self.single(actions)
        logprobs, entropy = self.distribution.logprob_entropy(head_of(params, features["actor"]), taken, mask)
        values = value_of(params, features[self.valuing])
        return self.as_rows(logprobs, seen), self.as_rows(entropy, seen), self.as_rows(values, seen)

    def values(self, params: Params, seen: Seen) -> Any:
        return self.as_rows(value_of(params, self.features_of(params, self.valuing, seen)), seen)

    def next_values(self, params: Params, seen: Seen, next_obs: Any) -> Any:
        network, own = self.critic, params[self.valuing]
        assert network.initial_carry is None, "traced_values gives its carries"
        features = network.apply(own, self.single(next_obs))
        if network.step is not None:
            features = network.step(own, self.features_of(params, self.valuing, seen), features)
        return self.as_rows(value_of(params, features), seen)

    def traced_values(self, params: Params, seen: Seen) -> tuple[Any, After | None]:
        if self.critic.initial_carry is None:
            return self.values(params, seen), None
        features, after = self.along(params, self.valuing, seen, trace=True)
        return self.as_rows(value_of(params, features), seen), after

    def values_after(self, params: Params, carry: Any, next_obs: Any) -> Any:
        network, own = self.critic, params[self.valuing]
        return value_of(params, advance(network, own, carry, network.apply(own, next_obs))[0])

    def piece_carries(self, params: Params, seen: Seen, length: int) -> Carry:
        ends = range(length - 1, seen.is_first.shape[1] - 1, length)  # the first piece begins with the rollout
        pieces = {}
        for name in self.remembering:
            after = self.along(params, name, seen, trace=True)[1]
            assert after is not None
            carries = [carry_of(seen.carry, name), *(after(t) for t in ends)]
            pieces[name] = joined(jax.tree.map(lambda *parts: jnp.stack(parts, axis=1), *carries))
        return prefixed(pieces)


def head_of(params: Params, features: Any) -> Parameters:
    head = params["action_head"]
    return Parameters(affine(head, "output", features), head.get("log_std"), features)


def value_of(params: Params, features: Any) -> Any:
    return affine(params["value_head"], "output", features)[:, 0]
