"""What an observation becomes before a network, and an action before an environment: NumPy, shared by both backends."""

from __future__ import annotations

import math

import numpy as np

from rl_training.types import (
    ACTION_MASK,
    Array,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    LeafSpec,
    MultiDiscreteSpec,
    SpaceSpec,
)


def observation_leaves(space: SpaceSpec) -> dict[str, LeafSpec]:
    """The named leaves that carry information; the action mask does not. A lone observation is named "obs"."""
    leaves = dict(space.spaces) if isinstance(space, DictSpec) else {"obs": space}
    return {name: leaf for name, leaf in leaves.items() if name != ACTION_MASK}


def leaf_features(leaf: LeafSpec) -> int:
    """Numbers a leaf becomes: one-hot for discrete ones, flat for the rest."""
    if isinstance(leaf, DiscreteSpec):
        return leaf.n
    if isinstance(leaf, MultiDiscreteSpec):
        return sum(leaf.nvec)
    return math.prod(leaf.shape)


def encode_leaf_numpy(leaf: LeafSpec, value: Array) -> Array:
    """(B, ...) raw values to (B, features) floats: one-hot, flat, bytes scaled to 0..1."""
    if isinstance(leaf, DiscreteSpec):
        return np.eye(leaf.n, dtype=np.float32)[value]
    if isinstance(leaf, MultiDiscreteSpec):
        return np.concatenate([np.eye(n, dtype=np.float32)[value[:, i]] for i, n in enumerate(leaf.nvec)], axis=1)
    flat = value.reshape(len(value), -1).astype(np.float32, copy=False)
    return flat / np.float32(255.0) if isinstance(leaf, BoxSpec) and leaf.dtype == np.uint8 else flat


def to_env(space: SpaceSpec, actions: Array) -> Array:
    """What the environment receives: Gaussian actions cut to the bounds. The raw ones are stored and learnt from."""
    if isinstance(space, BoxSpec):
        return np.clip(actions, space.low, space.high).astype(space.dtype, copy=False)
    return actions


def to_bounds(space: BoxSpec, actions: Array) -> Array:
    """-1..1 to the bounds of the space; low -2, high 1 and an action of .5 give .25."""
    scaled: Array = space.low + 0.5 * (actions + 1.0) * (space.high - space.low)
    return scaled.astype(space.dtype, copy=False)
