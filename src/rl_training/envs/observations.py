"""Checks observations passed to `predict`, one or a batch, and actions passed to `dream` against their spaces.

A wrong shape, a non-numeric or a non-finite value is refused, with what was expected and what was given. Other dtypes
are converted where nothing is lost: whole floats for an integer space, integers for a float space.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rl_training.types import (
    Array,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    LeafSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    Obs,
    ObservationError,
    SpaceSpec,
)


def as_batch(obs: Any, space: SpaceSpec, optional: Collection[str] = ()) -> tuple[Obs, bool]:
    """(batch (N, ...), whether a single observation was given); ObservationError if they do not fit the space.

    Keys that are `optional` may be missing; they are filled with zeros.
    """
    if not isinstance(space, DictSpec):
        if isinstance(obs, Mapping):
            keys = ", ".join(map(str, obs))
            raise ObservationError(f"expected an observation of {_form(space)}, got a mapping with the keys {keys}")
        return _leaf_batch(obs, space, "observation")
    if not isinstance(obs, Mapping):
        raise ObservationError(f"expected a mapping with the keys {', '.join(space.spaces)}, got {_given(obs)}")
    flat = _flat(obs)
    given = {key: leaf for key, leaf in space.spaces.items() if key in flat or key not in optional}
    if flat.keys() != given.keys():
        raise ObservationError(
            f"expected an observation with the keys {', '.join(space.spaces)}, got {', '.join(flat) or 'none'}"
        )
    leaves = {key: _leaf_batch(flat[key], leaf, f"observation '{key}'") for key, leaf in given.items()}
    counts = {key: (len(rows), single) for key, (rows, single) in leaves.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"'{key}' {'one' if one else f'a batch of {count}'}" for key, (count, one) in counts.items())
        raise ObservationError(f"expected one observation or one batch under every key, got {told}")
    (count, single), *_ = counts.values()
    rows = {key: rows for key, (rows, _) in leaves.items()}
    missing = {key: leaf for key, leaf in space.spaces.items() if key not in given}
    return rows | {key: np.zeros((count, *leaf.shape), leaf.dtype) for key, leaf in missing.items()}, single


def as_actions(actions: Any, space: LeafSpec) -> Array:
    """A sequence of actions (T, ...), which may be empty; ObservationError if they do not fit the space."""
    if isinstance(actions, Sequence | np.ndarray) and np.ndim(actions) and not len(actions):
        return np.zeros((0, *space.shape), space.dtype)
    rows, single = _leaf_batch(actions, space, "an action")
    if single:
        raise ObservationError(f"expected a sequence of actions, got one of {_form(space)}")
    return rows


def _flat(obs: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to "a/b" keys, as the environment factory does."""
    flat: dict[str, Any] = {}
    for key, value in obs.items():
        flat |= _flat(value, f"{prefix}{key}/") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _leaf_batch(value: Any, space: LeafSpec, what: str) -> tuple[Array, bool]:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; a tensor on another device
        raise ObservationError(f"expected {what} of {_form(space)}, got {_given(value)} ({error})") from None
    if array.dtype.kind not in "fiub":
        raise ObservationError(f"expected {what} of {_form(space)}, got {_given(value)} of dtype {array.dtype}")
    single = array.shape == space.shape
    if not single and (array.ndim != len(space.shape) + 1 or array.shape[1:] != space.shape or not len(array)):
        batch = ", ".join(["n", *map(str, space.shape)])
        raise ObservationError(
            f"expected {what} of shape {space.shape}, or a batch of shape ({batch}{',' if not space.shape else ''}) "
            f"with n at least 1, got shape {array.shape}"
        )
    return _converted(array[None] if single else array, space, what), single


def _converted(array: Array, space: LeafSpec, what: str) -> Array:
    """The values as the space's kind of number; ObservationError if the conversion would change one."""
    if not np.isfinite(array).all():
        place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
        raise ObservationError(f"expected finite numbers in {what}, got {array[place]} at row {place[0]}, {place[1:]}")
    if space.dtype.kind == "f":
        return array if array.dtype.kind == "f" else array.astype(space.dtype)
    low, high = _limits(space)
    wrong = (array < low) | (array > high)
    if array.dtype.kind == "f":
        wrong |= array != np.floor(array)
    if wrong.any():
        worst = array[wrong][0]
        bounds = f"{int(np.min(low))} to {int(np.max(high))}"
        raise ObservationError(f"expected whole numbers from {bounds} in {what} ({_form(space)}), got {worst}")
    return array.astype(space.dtype)


def _limits(space: LeafSpec) -> tuple[Any, Any]:
    """Smallest and largest value of an integer space."""
    if isinstance(space, DiscreteSpec):
        return 0, space.n - 1
    if isinstance(space, MultiDiscreteSpec):
        return 0, np.array(space.nvec) - 1
    if isinstance(space, MultiBinarySpec) or space.dtype.kind == "b":
        return 0, 1
    info = np.iinfo(space.dtype)
    return info.min, info.max


def _form(space: LeafSpec) -> str:
    """Shape and dtype of one observation, for messages."""
    if isinstance(space, DiscreteSpec):
        return f"one whole number, 0 to {space.n - 1}"
    name = "" if isinstance(space, BoxSpec) else f" ({type(space).__name__.removesuffix('Spec')})"
    return f"shape {space.shape} and dtype {space.dtype}{name}"


def _given(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
