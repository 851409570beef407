"""What the buffers share: the `Layout` of a transition, allocation, and reading and writing arrays or dicts of arrays.

A "tree" here is one array or a dict of arrays, never deeper. This is the only file of `data/` that imports torch, and
it does so only for buffers with a `device`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np

from rl_training.system import memory_limits
from rl_training.system.memory_limits import Room
from rl_training.types import Array, ConfigError, DictSpec, SpaceSpec

Shape = int | tuple[int, ...]
Shapes = Shape | Mapping[str, Shape]
DType = np.dtype[Any] | type[Any] | str
DTypes = DType | Mapping[str, DType]
Tree = Any
"""One array (NumPy, or torch where a device was given) or a dict of them."""

FieldLayout = tuple[Shapes, DTypes]
"""Shapes and dtypes of one field of a transition."""

MEMORY_SHARE = 0.9
"""Fraction of the free memory that a buffer may take; the rest is left to the networks and to other processes."""


class LayoutKeywords(TypedDict):
    """The keywords by which every buffer, built-in or registered by a user, is told its layout."""

    obs_shape: Shapes
    action_shape: Shapes
    obs_dtype: DTypes
    action_dtype: DTypes
    num_envs: int


@dataclass(frozen=True)
class Layout:
    """What one step consists of: shapes and dtypes of one environment's observation and action, and the number of
    environments. Shapes may be dicts of shapes; one dtype stands for all keys of such a dict."""

    obs_shape: Shapes
    action_shape: Shapes
    obs_dtype: DTypes = np.float32
    action_dtype: DTypes = np.float32
    num_envs: int = 1

    @classmethod
    def of(cls, observation_space: SpaceSpec, action_space: SpaceSpec, num_envs: int = 1) -> Layout:
        """The layout of two spaces: `RolloutBuffer(num_steps=128, **Layout.of(...).keywords())`."""
        (obs_shape, obs_dtype), (action_shape, action_dtype) = layout(observation_space), layout(action_space)
        return cls(obs_shape, action_shape, obs_dtype, action_dtype, num_envs)

    @property
    def obs(self) -> FieldLayout:
        return self.obs_shape, self.obs_dtype

    @property
    def actions(self) -> FieldLayout:
        return self.action_shape, self.action_dtype

    @property
    def transition_bytes(self) -> int:
        """Memory of one stored transition: both observations, the action, a float32 reward and three flags."""
        return 2 * row_bytes(*self.obs) + row_bytes(*self.actions) + 4 + 3

    def keywords(self) -> LayoutKeywords:
        """The layout as the keyword arguments of a buffer's constructor."""
        return {
            "obs_shape": self.obs_shape,
            "action_shape": self.action_shape,
            "obs_dtype": self.obs_dtype,
            "action_dtype": self.action_dtype,
            "num_envs": self.num_envs,
        }


def layout(space: SpaceSpec) -> FieldLayout:
    """(shapes, dtypes) of one space, as the buffers take them: `obs_shape, obs_dtype = layout(observation_space)`."""
    if isinstance(space, DictSpec):
        leaves = space.spaces.items()
        return {key: leaf.shape for key, leaf in leaves}, {key: leaf.dtype for key, leaf in leaves}
    return space.shape, space.dtype


def allocate(lead: tuple[int, ...], shapes: Shapes, dtypes: DTypes, device: Any = None) -> Tree:
    """Zeros (*lead, *shape) for every leaf. The system provides memory pages only when they are first written."""
    if isinstance(shapes, Mapping):
        return {key: allocate(lead, shape, _dtype(dtypes, key), device) for key, shape in shapes.items()}
    array = np.zeros((*lead, *as_tuple(shapes)), _dtype(dtypes))
    return array if device is None else to_tensors(array, device)


def row_bytes(shapes: Shapes, dtypes: DTypes) -> int:
    """Bytes of one row."""
    if isinstance(shapes, Mapping):
        return sum(row_bytes(shape, _dtype(dtypes, key)) for key, shape in shapes.items())
    return math.prod(as_tuple(shapes)) * _dtype(dtypes).itemsize


def replay_memory_bytes(
    capacity: int,
    obs_shape: Shapes,
    action_shape: Shapes,
    *,
    obs_dtype: DTypes = np.float32,
    action_dtype: DTypes = np.float32,
) -> int:
    """Memory of a full ReplayBuffer: both observations, the action, a float32 reward and three flags per transition.

    >>> replay_memory_bytes(1, 17, 6)
    167
    """
    return capacity * Layout(obs_shape, action_shape, obs_dtype, action_dtype).transition_bytes


def as_tuple(shape: Shape) -> tuple[int, ...]:
    """4 -> (4,)"""
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _dtype(dtypes: DTypes, key: str = "") -> np.dtype[Any]:
    """The dtype of one leaf; a single dtype applies to all leaves."""
    return np.dtype(dtypes[key] if isinstance(dtypes, Mapping) else dtypes)


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Apply `function` to every leaf."""
    if isinstance(tree, dict):
        return {key: function(leaf) for key, leaf in tree.items()}
    return function(tree)


def read(tree: Tree, index: Any) -> Tree:
    """tree[index], leaf by leaf: views for slices, copies for arrays of rows."""
    return map_tree(lambda leaf: leaf[index], tree)


def write(tree: Tree, index: Any, value: Tree) -> None:
    """tree[index] = value, leaf by leaf; copies."""
    if isinstance(tree, np.ndarray):
        tree[index] = value
    elif isinstance(tree, dict):
        for key, leaf in tree.items():
            write(leaf, index, value[key])
    else:
        import torch

        tree[index] = torch.as_tensor(value)


def to_numpy(value: Any) -> Array:
    """A NumPy view of an array-like; a tensor is detached and fetched from its device."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def to_tensors(tree: Tree, device: Any) -> Tree:
    """Torch tensors on `device`; on the CPU they share the arrays' memory."""
    import torch

    return map_tree(lambda leaf: torch.from_numpy(leaf).to(device), tree)


def fit_capacity(
    capacity: int, bytes_per_row: int, *, on_memory: Literal["refuse", "shrink"], available: Room | None = None
) -> int:
    """Rows to allocate: `capacity` if it fits into memory; otherwise ConfigError or, with "shrink", as many as fit."""
    if capacity < 1:
        raise ConfigError(f"a buffer must hold at least 1 transition, not {capacity}: set buffer.size")
    found = memory_limits.room() if available is None else available
    budget = int(MEMORY_SHARE * found.bytes)
    if capacity * bytes_per_row <= budget:
        return capacity
    fits = budget // bytes_per_row
    if on_memory == "shrink" and fits > 0:
        warnings.warn(
            f"the buffer holds {fits:,} transitions instead of {capacity:,}: {_gigabytes(budget)} available "
            f"({found.limit})",
            UserWarning,
            stacklevel=2,
        )
        return fits
    raise ConfigError(
        f"a buffer of {capacity:,} transitions x {bytes_per_row} bytes needs {_gigabytes(capacity * bytes_per_row)}, "
        f"{_gigabytes(budget)} available ({found.limit}): set buffer.size to at most {fits:,}, or buffer.on_memory "
        "to 'shrink'"
    )


def check_rollout_memory(num_steps: int, num_envs: int, bytes_per_row: int) -> None:
    """Raise ConfigError, with the sizes, unless a rollout of num_steps x num_envs rows fits into memory."""
    needed, found = num_steps * num_envs * bytes_per_row, memory_limits.room()
    if needed > (budget := int(MEMORY_SHARE * found.bytes)):
        raise ConfigError(
            f"a rollout of {num_steps:,} steps in {num_envs:,} environments needs {_gigabytes(needed)}, "
            f"{_gigabytes(budget)} available ({found.limit}): lower hparams.num_steps or env.num_envs"
        )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"


def arrays(state: Any) -> list[np.ndarray[Any, Any]]:
    """Every array below a state."""
    if isinstance(state, dict):
        return [array for value in state.values() for array in arrays(value)]
    return [state] if isinstance(state, np.ndarray) else []


def array_bytes(state: Any) -> int:
    return sum(int(array.nbytes) for array in arrays(state))
