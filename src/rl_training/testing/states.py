"""Comparing states: copies, the first difference between two, and the global random generators."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from rl_training.checkpointing.row_log import RowLog
from rl_training.checkpointing.state_tree import flatten, unflatten
from rl_training.types import StateDict

GLOBAL_GENERATORS: dict[str, Callable[[Any], Any]] = {
    "numpy.random": lambda module: (module.get_state()[1].tobytes(), module.get_state()[2:]),
    "random": lambda module: module.getstate(),
    "torch": lambda module: module.get_rng_state().numpy().tobytes(),
}
"""How to read the global random generators of the modules that are loaded."""


def global_random_state() -> dict[str, Any]:
    return {name: read(sys.modules[name]) for name, read in GLOBAL_GENERATORS.items() if name in sys.modules}


def snapshot(state: StateDict) -> StateDict:
    """A copy of the state as a checkpoint would give it back, independent of the running algorithm.

    CheckpointError names the path of what cannot be saved.
    """
    flat = flatten(state)
    copied = unflatten(flat._replace(arrays={name: array.copy() for name, array in flat.arrays.items()}))
    return cast(StateDict, _with_own_rows(copied))


def _with_own_rows(tree: Any) -> Any:
    """Copy the rows of replay buffers, whose states are views of their rings."""
    if isinstance(tree, dict):
        return {key: _with_own_rows(value) for key, value in tree.items()}
    if isinstance(tree, RowLog):
        return RowLog({name: column.copy() for name, column in tree.columns.items()}, tree.start, tree.stop)
    return tree


def difference(one: Any, other: Any, path: str = "") -> str | None:
    """Where two states first differ by a single bit, in words; None where they do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            place = f"{path}/{key}".strip("/")
            if key not in one or key not in other:
                return f"'{place}' (there in only one of them)"
            if found := difference(one[key], other[key], place):
                return found
        return None
    if isinstance(one, RowLog) and isinstance(other, RowLog):
        rows: list[StateDict] = [{"start": log.start, "stop": log.stop, **log.arrays()} for log in (one, other)]
        return difference(rows[0], rows[1], path)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        same = one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        return None if same else f"'{path}' ({one.dtype} {one.shape} and {other.dtype} {other.shape})"
    return None if repr(one) == repr(other) else f"'{path}' ({one!r} and {other!r})"
