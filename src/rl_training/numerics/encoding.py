"""Encoding of observations for networks and of actions for environments: NumPy, shared by both backends."""

from __future__ import annotations

import math
from typing import Any

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
    """The named leaves that a network reads: all but the action mask. An observation that is not a Dict is "obs"."""
    leaves = dict(space.spaces) if isinstance(space, DictSpec) else {"obs": space}
    return {name: leaf for name, leaf in leaves.items() if name != ACTION_MASK}


def leaf_features(leaf: LeafSpec) -> int:
    """Number of features of an encoded leaf: one-hot if discrete or an image of codes, else flattened."""
    if isinstance(leaf, DiscreteSpec):
        return leaf.n
    if isinstance(leaf, MultiDiscreteSpec):
        return sum(leaf.nvec)
    if isinstance(leaf, BoxSpec) and leaf.codes is not None:
        return len(leaf.codes.values)
    return math.prod(leaf.shape)


def pictures_of(space: SpaceSpec) -> dict[str, BoxSpec]:
    """The image leaves: uint8, or floats in 0..1, with three axes, or four if frames are stacked."""

    def is_picture(leaf: LeafSpec) -> bool:
        if not isinstance(leaf, BoxSpec) or len(leaf.shape) not in (3, 4):
            return False
        return leaf.dtype == np.uint8 or bool((leaf.low == 0.0).all() and (leaf.high == 1.0).all())

    return {name: leaf for name, leaf in observation_leaves(space).items() if is_picture(leaf)}  # type: ignore[misc]


def picture_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The order of an image's axes that puts its channels first, height and width last.

    Two neighbouring axes of equal length are height and width, and the third one holds the channels. If that does not
    decide, channels are first if the first axis is the shortest, else last. A stack of images has a fourth axis in
    front, which adds channels.

    >>> [picture_axes(shape) for shape in ((3, 84, 84), (84, 84, 3), (60, 80, 3), (4, 84, 84, 3))]
    [(0, 1, 2), (2, 0, 1), (2, 0, 1), (0, 3, 1, 2)]
    """
    stacked, (a, b, c) = len(shape) - 3, shape[-3:]
    first = b == c if (a == b) != (b == c) else a < min(b, c)
    order = (0, 1, 2) if first else (2, 0, 1)
    return (*range(stacked), *(stacked + axis for axis in order))


def encode_leaf_numpy(leaf: LeafSpec, value: Array) -> Array:
    """Encode raw values (B, ...) as floats (B, features): codes one-hot, the rest flattened, bytes scaled to 0..1.

    >>> image = BoxSpec(np.zeros((1, 1, 2)), np.array([[[3, 1]]], np.uint8), np.dtype(np.uint8))
    >>> encode_leaf_numpy(image, np.array([[[[2, 0]]]], np.uint8)).round(3).tolist()
    [[0.0, 0.0, 2.0, 0.0, 1.414, 0.0]]
    """
    if isinstance(leaf, DiscreteSpec):
        return np.eye(leaf.n, dtype=np.float32)[value]
    if isinstance(leaf, MultiDiscreteSpec):
        return np.concatenate([np.eye(n, dtype=np.float32)[value[:, i]] for i, n in enumerate(leaf.nvec)], axis=1)
    flat = value.reshape(len(value), math.prod(value.shape[1:]))  # not -1, which no rows leave open
    if isinstance(leaf, BoxSpec) and leaf.codes is not None:
        features: Array = (flat.take(leaf.codes.positions, axis=1) == leaf.codes.values) * leaf.codes.scale
        return features
    numbers = flat.astype(np.float32, copy=False)
    return numbers / np.float32(255.0) if isinstance(leaf, BoxSpec) and leaf.dtype == np.uint8 else numbers


def to_env(space: SpaceSpec, actions: Array) -> Array:
    """Gaussian actions clipped to the bounds for the environment; the unclipped ones are stored and learnt from."""
    return within(space, actions) if isinstance(space, BoxSpec) else actions


def to_bounds(space: BoxSpec, actions: Array) -> Array:
    """Map actions from -1..1 to the bounds of the space; low -2, high 1 and an action of .5 give .25."""
    low, high = space.low, space.high
    if space.is_wide:
        return within(space, (0.5 - 0.5 * actions) * low + (0.5 + 0.5 * actions) * high)
    return within(space, low + 0.5 * (actions + 1.0) * (high - low))


def from_bounds(space: BoxSpec, actions: Array) -> Array:
    """The inverse of `to_bounds`: actions within the bounds of the space as numbers in -1..1.

    >>> space = BoxSpec(np.array([-2.0]), np.array([1.0]), np.dtype(np.float64))
    >>> from_bounds(space, np.array([0.25])).tolist()
    [0.5]
    """
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    scaled: Array = ((np.asarray(actions, np.float64) - low) / (high / 2 - low / 2) - 1.0).astype(np.float32)
    return scaled


def within(space: BoxSpec, actions: Array) -> Array:
    """Clip to the bounds, in the dtype of the space: an environment may refuse a value that is off by one rounding."""
    # maximum and minimum: np.clip costs twice as much on the few numbers of one acting step
    return np.minimum(np.maximum(actions, space.low), space.high).astype(space.dtype, copy=False)


def in_dtype(space: BoxSpec, dtype: np.dtype[Any]) -> BoxSpec:
    """The space in another float dtype, its bounds rounded inwards: 0.1 in float32 is more than 0.1."""
    if dtype == space.dtype or dtype.kind != "f":
        return space
    with np.errstate(over="ignore"):
        nearest, above = space.low.astype(dtype), space.high.astype(dtype)
    low = np.where(nearest < space.low, np.nextafter(nearest, dtype.type(np.inf)), nearest)
    high = np.where(above > space.high, np.nextafter(above, dtype.type(-np.inf)), above)
    empty = low > high  # no number of that dtype lies between the bounds: take the nearest
    return BoxSpec(np.where(empty, nearest, low), np.where(empty, nearest, high), dtype)
