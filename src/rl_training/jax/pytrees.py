"""Pytrees to checkpoint state and back: NumPy arrays under the names of fields and keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from rl_training.types import CheckpointError, StateDict


def tree_state(tree: Any) -> Any:
    """Copies of all leaves in nested dicts, in torch's conventions: dicts of dicts are flattened with dotted names, and
    weight matrices are (outputs, inputs)."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        state: StateDict = {}
        for key, value in tree.items():
            inner = tree_state(value)
            state |= named(key, inner) if isinstance(value, dict) else {key: turned(key, inner)}
        return state
    if isinstance(tree, tuple):
        return {name: tree_state(value) for name, value in fields_of(tree).items()}
    return np.array(tree)


def restored(like: Any, state: Any, where: str = "") -> Any:
    """The pytree with the structure of `like` and the values of `state`; the inverse of `tree_state`."""
    if like is None:
        return None
    if isinstance(like, dict):
        found = {
            key: below(state, key) if isinstance(value, dict) else turned(key, entry(state, key, where))
            for key, value in like.items()
        }
        return {key: restored(value, found[key], f"{where}/{key}") for key, value in like.items()}
    if isinstance(like, tuple):
        parts = fields_of(like)
        values = [restored(value, entry(state, name, where), f"{where}/{name}") for name, value in parts.items()]
        return type(like)(*values) if hasattr(like, "_fields") else tuple(values)
    value = np.array(state, like.dtype)
    if value.shape != like.shape:
        raise CheckpointError(f"{where[1:]} was saved with shape {value.shape}, this run needs {like.shape}")
    return value


def fields_of(tree: tuple[Any, ...]) -> dict[str, Any]:
    """The elements of a tuple by field name, or by index for a plain tuple."""
    names = getattr(tree, "_fields", None) or [str(i) for i in range(len(tree))]
    return dict(zip(names, tree, strict=True))


def named(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    """The entries of a dict under `prefix.name`."""
    return {f"{prefix}.{name}": value for name, value in state.items()}


def turned(name: str, value: Any) -> Any:
    """A weight matrix transposed; everything else unchanged."""
    is_matrix = name.endswith("weight") and np.ndim(value) == 2
    return np.ascontiguousarray(value.T) if is_matrix else value


def below(state: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The entries `prefix.name` of a dict, under `name`; the inverse of `named`."""
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}


def entry(state: Any, name: str, where: str) -> Any:
    if not isinstance(state, Mapping) or name not in state:
        raise CheckpointError(f"the checkpoint has no '{where}/{name}': it belongs to another network or algorithm")
    return state[name]


def to_host(tree: Any) -> Any:
    """NumPy copies of all leaves, in the same structure."""
    return jax.tree.map(np.array, tree)
