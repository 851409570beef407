"""A causal transformer as a memory: attention over the last `window` inputs of the episode.

The twin of `models/backbones/transformer.py`, with its weights and its carry: the last raw inputs and how many steps
into the episode each came. Features are computed from them anew, so nothing that depends on old weights is carried.
`follow` sees all steps of a rollout at once; a single step is a rollout of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.config.schema import MemoryConfig
from rl_training.jax.models.backbones.base import Network
from rl_training.jax.models.layers import Params, exact_sigmoid, layer_norm, linear
from rl_training.jax.pytrees import named
from rl_training.types import ConfigError

UPDATE_BIAS = -2.0
"""Bias of the gates' update: a fresh gated transformer hardly changes its stream."""


def transformer_behind(encoder: Network, cfg: MemoryConfig, kind: str) -> Network:
    """`layers` blocks of attention and a feed-forward network over an embedding of the encoder's outputs."""
    size, inputs = cfg.size, encoder.out_features
    if size % cfg.heads:
        raise ConfigError(f"memory: size {size} is not a multiple of heads {cfg.heads}")
    reach = max(1, cfg.layers * (cfg.window - 1))
    blocks = [f"cell.blocks.{i}" for i in range(cfg.layers)]

    def init(rng: np.random.Generator) -> Params:
        params = {**encoder.init(rng), **named("cell.embed", linear(rng, inputs, size, kind=kind, gain=1.0))}
        for block in blocks:
            params |= named(block, block_weights(rng, cfg, kind))
        return params | named("cell.norm", norm_weights(size))

    def initial_carry(num_envs: int) -> Any:
        return {
            "inputs": np.zeros((num_envs, reach, inputs), np.float32),
            "ages": np.full((num_envs, reach), -1, np.int32),
        }

    def follow(params: Params, carry: Any, seen: Any, is_first: Any) -> tuple[Any, Callable[[Any], Any]]:
        steps = seen.shape[1]
        rows = jnp.concatenate([carry["inputs"], seen], axis=1)  # (N, K + T, F)
        ages = jnp.concatenate([carry["ages"], ages_along(carry["ages"][:, -1:], is_first)], axis=1)
        hidden, episode = dense(params, "cell.embed", rows), episodes(ages)
        for block in blocks:
            asking = steps if block == blocks[-1] else reach + steps  # nothing reads the other rows of the last block
            hidden = block_outputs(params, block, cfg, hidden, episode, asking)

        def after(t: Any) -> Any:
            window = (jax.lax.dynamic_slice_in_dim(x, t + 1, reach, axis=1) for x in (rows, ages))
            return running_episode(*window)

        return layer_norm(params, "cell.norm", hidden), after

    def step(params: Params, carry: Any, seen: Any) -> tuple[Any, Any]:
        features, after = follow(params, carry, seen[:, None], jnp.zeros((len(seen), 1), bool))
        return features[:, 0], after(0)

    return Network(init, encoder.apply, size, step, initial_carry, follow)


# -- weights ----------------------------------------------------------------------------------------------------------


def norm_weights(size: int) -> Params:
    return {"weight": np.ones(size, np.float32), "bias": np.zeros(size, np.float32)}


def block_weights(rng: np.random.Generator, cfg: MemoryConfig, kind: str) -> Params:
    """Weights of one block, drawn in the order of the torch twin."""
    size = cfg.size
    params = named("norm_attention", norm_weights(size)) | named("norm_feed", norm_weights(size))
    plan = (
        ("query_key_value", size, 3 * size, 1.0),
        ("output", size, size, 1.0),
        ("widen", size, 2 * size, 2.0**0.5),
        ("narrow", 2 * size, size, 1.0),
    )
    for layer, inputs, outputs, gain in plan:
        params |= named(layer, linear(rng, inputs, outputs, kind=kind, gain=gain))
    params["distance_bias"] = np.zeros((cfg.heads, cfg.window), np.float32)
    for number in range(2 if cfg.gating else 0):
        for layer, times in (("added", 3), ("stream", 2), ("candidate", 1)):
            params |= named(f"gates.{number}.{layer}", linear(rng, size, times * size, kind=kind, gain=1.0))
        params[f"gates.{number}.added.bias"][size : 2 * size] = UPDATE_BIAS
    return params


# -- episodes ---------------------------------------------------------------------------------------------------------


def ages_along(before: Any, is_first: Any) -> Any:
    """Steps since the episode began, (N, T), from the age (N, 1) of the step before them; -1 stands for none."""
    index = jnp.arange(is_first.shape[1], dtype=jnp.int32)
    begun = jax.lax.cummax(jnp.where(is_first, index, -1), axis=1)
    return jnp.where(begun >= 0, index - begun, before + 1 + index)


def episodes(ages: Any) -> Any:
    """Numbers that tell episodes apart: the index of their first step, and a negative one of its own for no input."""
    count = ages.shape[1]
    index = jnp.arange(count, dtype=jnp.int32)
    return jnp.where(ages >= 0, index - ages, -1 - index - count)


def running_episode(inputs: Any, ages: Any) -> Any:
    """A carry (N, K, F) of the running episode alone: what lies before its first step is zero and has age -1."""
    distance = jnp.arange(ages.shape[1] - 1, -1, -1, dtype=jnp.int32)
    own = (ages >= 0) & (ages[:, -1:] - distance == ages)
    return {"inputs": jnp.where(own[..., None], inputs, 0.0), "ages": jnp.where(own, ages, -1)}


# -- blocks -----------------------------------------------------------------------------------------------------------


def dense(params: Params, layer: str, x: Any) -> Any:
    """x @ weight + bias along the last axis."""
    return x @ params[f"{layer}.weight"] + params[f"{layer}.bias"]


def block_outputs(params: Params, block: str, cfg: MemoryConfig, x: Any, episode: Any, asking: int) -> Any:
    """Pre-norm attention within a window and an episode, then two linear layers; for the last `asking` steps."""
    attended = attention(params, block, cfg, layer_norm(params, f"{block}.norm_attention", x), episode, asking)
    x = x[:, -asking:]
    x = gated(params, f"{block}.gates.0", x, jax.nn.relu(attended)) if cfg.gating else x + attended
    wide = jax.nn.relu(dense(params, f"{block}.widen", layer_norm(params, f"{block}.norm_feed", x)))
    fed = dense(params, f"{block}.narrow", wide)
    return gated(params, f"{block}.gates.1", x, jax.nn.relu(fed)) if cfg.gating else x + fed


def attention(params: Params, block: str, cfg: MemoryConfig, x: Any, episode: Any, asking: int) -> Any:
    """Attention of the last `asking` of S steps to those of their window that belong to the same episode."""
    rows, steps, size = x.shape
    weight, bias = params[f"{block}.query_key_value.weight"], params[f"{block}.query_key_value.bias"]
    query = x[:, -asking:] @ weight[:, :size] + bias[:size]
    key, value = jnp.split(x @ weight[:, size:] + bias[size:], 2, axis=-1)
    query, key, value = (
        part.reshape(rows, -1, cfg.heads, size // cfg.heads).transpose(0, 2, 1, 3) for part in (query, key, value)
    )
    index = np.arange(steps)
    distance = index[-asking:, None] - index[None, :]  # (asking, S)
    near = (distance >= 0) & (distance < cfg.window)
    allowed = near & (episode[:, -asking:, None] == episode[:, None, :])  # (N, asking, S)
    closeness = params[f"{block}.distance_bias"][:, distance.clip(0, cfg.window - 1)]  # (heads, asking, S)
    scores = query @ key.swapaxes(-1, -2) / np.float32((size // cfg.heads) ** 0.5) + closeness
    weights = jax.nn.softmax(jnp.where(allowed[:, None], scores, -jnp.inf), axis=-1)
    return dense(params, f"{block}.output", (weights @ value).transpose(0, 2, 1, 3).reshape(rows, asking, size))


def gated(params: Params, gate: str, stream: Any, added: Any) -> Any:
    """The gate of GTrXL (Parisotto et al. 2019, arXiv:1910.06764): a GRU between the stream and what a layer adds."""
    reset_added, update_added, new_added = jnp.split(dense(params, f"{gate}.added", added), 3, axis=-1)
    reset, update = jnp.split(dense(params, f"{gate}.stream", stream), 2, axis=-1)
    new = jnp.tanh(new_added + dense(params, f"{gate}.candidate", exact_sigmoid(reset_added + reset) * stream))
    return stream + exact_sigmoid(update_added + update) * (new - stream)
