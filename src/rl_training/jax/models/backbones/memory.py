"""Memories along episodes: one step, a whole rollout, and the carry of several networks under one dict.

A carry is reset to `initial_carry` wherever an episode begins, so what came before changes no bit of what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from rl_training.jax.models.backbones.base import Network
from rl_training.jax.models.layers import Params, library

After = Callable[[Any], Any]
"""t -> the carry of N environments after step t of a rollout."""


def initial_carry(network: Network, num_envs: int) -> Any:
    """The carry of a network with memory at the start of N episodes."""
    if network.initial_carry is None:
        return np.zeros((num_envs, network.out_features), np.float32)
    return network.initial_carry(num_envs)


def kept(network: Network, carry: Any, is_first: Any) -> Any:
    """The carry, with the rows of environments whose episode begins reset."""

    def one(begin: Any, value: Any) -> Any:
        return library(value).where(is_first.reshape(-1, *(1,) * (value.ndim - 1)), begin, value)

    if network.initial_carry is None:
        return one(0.0, carry)
    return jax.tree.map(one, network.initial_carry(1), carry)


def advance(network: Network, params: Params, carry: Any, seen: Any) -> tuple[Any, Any]:
    """(features, carry) after one more step of B environments within their episodes; `seen` is what `apply` gave."""
    assert network.step is not None
    if network.initial_carry is None:
        memory = network.step(params, carry, seen)
        return memory, memory
    features, carry = network.step(params, carry, seen)
    return features, carry


def stepped(network: Network, params: Params, obs: Any, carry: Any, is_first: Any) -> tuple[Any, Any]:
    """(features, carry) after one more step of N environments; the carry is reset at the start of an episode."""
    return advance(network, params, kept(network, carry, is_first), network.apply(params, obs))


def followed(
    network: Network, params: Params, obs: Any, carry: Any, is_first: Any, *, trace: bool = False
) -> tuple[Any, After | None]:
    """Observations (N, T, ...) and the carry before them to features (N * T, F); with `trace` also the carries."""
    seen = network.apply(params, joined(obs))
    seen = seen.reshape(*is_first.shape, *seen.shape[1:])
    if network.follow is not None:
        features, after = network.follow(params, kept(network, carry, is_first[:, 0]), seen, is_first)
        return joined(features), after
    also_carries = trace and network.initial_carry is not None

    def one(carry: Any, row: tuple[Any, Any]) -> tuple[Any, Any]:
        begins, seen = row
        features, carry = advance(network, params, kept(network, carry, begins), seen)
        return carry, (features, carry if also_carries else ())

    _, (features, carries) = jax.lax.scan(one, carry, (is_first.swapaxes(0, 1), seen.swapaxes(0, 1)))
    states = carries if also_carries else features
    return joined(features.swapaxes(0, 1)), (lambda t: jax.tree.map(lambda x: x[t], states)) if trace else None


def joined(tree: Any) -> Any:
    """(N, T, ...) to (N * T, ...), for an array or a dict of arrays."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


# -- one dict for several networks ------------------------------------------------------------------------------------


def prefixed(carries: Mapping[str, Any]) -> dict[str, Any]:
    """The carries of several networks as one flat dict: `{"actor": {"hidden": h}}` becomes `{"actor/hidden": h}`; a
    carry that is one array keeps the name of its network."""
    flat: dict[str, Any] = {}
    for owner, carry in carries.items():
        flat |= (
            {f"{owner}/{name}": value for name, value in carry.items()} if isinstance(carry, dict) else {owner: carry}
        )
    return flat


def carry_of(carry: Mapping[str, Any], owner: str) -> Any:
    """The part of a joint carry that belongs to one network."""
    if owner in carry:
        return carry[owner]
    start = f"{owner}/"
    return {name.removeprefix(start): value for name, value in carry.items() if name.startswith(start)}
