"""Spaces as Minari writes them, and where their leaves are in its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.data.datasets.info import DatasetError
from rl_training.types import (
    Array,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    LeafSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
)

MAX_DEPTH = 16


@dataclass(frozen=True)
class Leaf:
    """One leaf of a space: its key in this package, its place in the file, and how its numbers are read."""

    key: str
    """"" for a space that is no Dict, else "a/b"."""
    place: str
    """"" or "/a/b", below `observations` or `actions`."""
    spec: LeafSpec
    start: Any = 0
    """What the first of discrete numbers is in the file."""

    def cast(self, column: Array) -> Array:
        """Numbers of the file in the dtype of the space; discrete ones begin at 0."""
        if isinstance(self.spec, BoxSpec):
            return column if column.dtype == self.spec.dtype else column.astype(self.spec.dtype)
        counted: Array = (column - np.asarray(self.start)).astype(self.spec.dtype)
        return counted


def leaves_of(space: Any, key: str = "", place: str = "", depth: int = 0) -> list[Leaf]:
    """The leaves of a space that Minari wrote; ValueError, KeyError or TypeError for anything else."""
    if depth > MAX_DEPTH:
        raise ValueError("a space of too many levels")
    kind = space["type"]
    if kind in ("Dict", "Tuple"):
        inner = space["subspaces"]
        named = inner.items() if kind == "Dict" else ((f"_index_{i}", each) for i, each in enumerate(inner))
        found = []
        for name, each in named:
            own = str(name).removeprefix("_index_") if kind == "Tuple" else str(name)
            found += leaves_of(each, f"{key}/{own}" if key else own, f"{place}/{name}", depth + 1)
        return found
    return [Leaf(key, place, leaf_of(space), space.get("start", 0))]


def leaf_of(space: Any) -> LeafSpec:
    kind = space["type"]
    if kind == "Box":
        dtype, shape = np.dtype(space["dtype"]), tuple(int(size) for size in space["shape"])
        if dtype.kind not in "fiub":
            raise ValueError(f"a Box of dtype {dtype}")
        low, high = (np.asarray(space[name], dtype).reshape(shape) for name in ("low", "high"))
        return BoxSpec(low, high, dtype)
    if kind == "Discrete":
        return DiscreteSpec(int(space["n"]))
    if kind == "MultiDiscrete":
        return MultiDiscreteSpec(tuple(int(n) for n in np.ravel(space["nvec"])))
    if kind == "MultiBinary":
        return MultiBinarySpec(int(np.prod(space["n"])))
    raise DatasetError(f"spaces of type {kind} are not supported")


def spec_of(space: Any) -> SpaceSpec:
    """The space as this package has it: nested ones become flat "a/b" keys."""
    leaves = leaves_of(space)
    return (
        leaves[0].spec if [leaf.key for leaf in leaves] == [""] else DictSpec({leaf.key: leaf.spec for leaf in leaves})
    )


def minari_space(space: SpaceSpec) -> dict[str, Any]:
    """A space as Minari writes it; "a/b" keys become nested ones, as they do in its files."""
    if isinstance(space, DictSpec):
        root: dict[str, Any] = {"type": "Dict", "subspaces": {}}
        for key, leaf in space.spaces.items():
            node, *path = root, *key.split("/")
            for part in path[:-1]:
                node = node["subspaces"].setdefault(part, {"type": "Dict", "subspaces": {}})
            node["subspaces"][path[-1]] = minari_space(leaf)
        return root
    if isinstance(space, DiscreteSpec):
        return {"type": "Discrete", "dtype": "int64", "start": 0, "n": space.n}
    if isinstance(space, MultiDiscreteSpec):
        zeros = [0] * len(space.nvec)
        return {"type": "MultiDiscrete", "dtype": "int64", "nvec": list(space.nvec), "start": zeros}
    if isinstance(space, MultiBinarySpec):
        return {"type": "MultiBinary", "n": space.n}
    bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
    return {"type": "Box", "dtype": space.dtype.name, "shape": list(space.shape), **bounds}
