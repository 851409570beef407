"""Conversion of Gymnasium spaces to a few plain kinds, and to the `SpaceSpec` records that the layers above use.

Observations end as one leaf or one flat Dict of leaves ("a/b" keys), actions as one leaf. A leaf is a Box with at least
one dimension, a 0-based Discrete, a 1-d MultiDiscrete or a 1-d MultiBinary. An environment whose spaces are plain
already is returned without a wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.suites import Env
from rl_training.numerics.agents import joint_actions
from rl_training.types import (
    ACTION_MASK,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    EnvError,
    JointSpec,
    LeafSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
)

Space = spaces.Space[Any]
Convert = Callable[[Any], Any]


# -- records ----------------------------------------------------------------------------------------------------------


class JointSpace(spaces.Dict):
    """The Dict space of what several agents observe, with the record of who plays whom."""

    def __init__(self, joint: JointSpec) -> None:
        boxes = {key: leaf for key, leaf in joint.spaces.items() if isinstance(leaf, BoxSpec)}
        super().__init__({key: spaces.Box(leaf.low, leaf.high, dtype=leaf.dtype.type) for key, leaf in boxes.items()})
        self.joint = joint


class JointActions(spaces.Box):
    """The space of joint actions: the actions of several agents behind one another, as numbers."""

    def __init__(self, joint: JointSpec) -> None:
        numbers = joint_actions(joint)
        super().__init__(numbers.low, numbers.high, dtype=np.float64)
        self.joint = joint


def gym_space(leaf: LeafSpec) -> Space:
    """The Gymnasium space of a record."""
    if isinstance(leaf, DiscreteSpec):
        return spaces.Discrete(leaf.n)
    if isinstance(leaf, MultiDiscreteSpec):
        return spaces.MultiDiscrete(list(leaf.nvec))
    if isinstance(leaf, MultiBinarySpec):
        return spaces.MultiBinary(leaf.n)
    return spaces.Box(leaf.low, leaf.high, dtype=leaf.dtype.type)


def space_spec(space: Space) -> SpaceSpec:
    """The `SpaceSpec` of a converted single (not batched) space."""
    if isinstance(space, JointSpace):
        return space.joint
    if isinstance(space, spaces.Dict):
        return DictSpec({key: _leaf_spec(leaf, key) for key, leaf in space.spaces.items()})
    return _leaf_spec(space, "")


def _leaf_spec(space: Space, key: str) -> LeafSpec:
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return DiscreteSpec(int(space.n))
    if isinstance(space, spaces.Box):
        return BoxSpec(space.low, space.high, np.dtype(space.dtype))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 and not np.any(space.start):
        return MultiDiscreteSpec(tuple(int(n) for n in space.nvec))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return MultiBinarySpec(int(space.shape[0]))
    where = f" of '{key}'" if key else ""
    raise EnvError(f"the space {space}{where} is not converted; build the environment with make_env")


# -- leaves -----------------------------------------------------------------------------------------------------------


def _plain_leaf(space: Space, key: str) -> Space:
    """The space a leaf is converted to; the same object if nothing needs to change."""
    if isinstance(space, spaces.Discrete):
        return space if space.start == 0 else spaces.Discrete(space.n)
    if isinstance(space, spaces.Box):
        if space.shape:
            return space
        return spaces.Box(space.low.reshape(1), space.high.reshape(1), dtype=_dtype(space))
    if isinstance(space, spaces.MultiDiscrete):
        if space.nvec.ndim == 1 and not np.any(space.start):
            return space
        return spaces.MultiDiscrete(space.nvec.reshape(-1), dtype=_dtype(space))
    if isinstance(space, spaces.MultiBinary):
        return space if len(space.shape) == 1 else spaces.MultiBinary(int(np.prod(space.shape)))
    where = f" at '{key}'" if key else ""
    raise EnvError(
        f"cannot convert the space {space}{where}: {_why_not(space)}. Box, Discrete, MultiDiscrete, MultiBinary, and "
        "Dict or Tuple of them are supported; turn it into one of these with a wrapper of your own (env.wrappers)"
    )


def _why_not(space: Space) -> str:
    """Why a leaf has no array of a fixed shape."""
    if type(space).__name__ == "MissionSpace":
        return "a mission is text; the wrapper 'minigrid' turns it into numbers or leaves it out"
    if isinstance(space, spaces.Text):
        return "networks read numbers, not text"
    if isinstance(space, spaces.Graph | spaces.Sequence):
        return "its values have no fixed size"
    return "networks need arrays of one shape"


def _dtype(space: Space) -> Any:
    return np.dtype(space.dtype)


def _start(space: Space) -> Any:
    """Offset between a 0-based value and the environment's; 0 if there is none."""
    start = getattr(space, "start", 0)
    return start if np.any(start) else 0


def _leaf_to_plain(space: Space) -> Convert:
    start = _start(space)
    if isinstance(space, spaces.Discrete):
        return lambda value: value - start
    shift = np.reshape(start, -1).astype(_dtype(space))
    return lambda value: np.reshape(value, -1) - shift if shift.any() else np.reshape(value, -1)


def _leaf_from_plain(space: Space) -> Convert:
    start = _start(space)
    if isinstance(space, spaces.Discrete):
        dtype = _dtype(space).type
        return lambda value: dtype(value + start)
    shape, dtype = space.shape or (), _dtype(space)
    return lambda value: np.asarray(np.reshape(value, shape) + start, dtype)


# -- observations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Leaf:
    key: str
    path: tuple[Any, ...]
    space: Space

    def get(self, value: Any) -> Any:
        for part in self.path:
            value = value[part]
        return value


def _leaves(space: Space, path: tuple[Any, ...] = ()) -> Iterator[_Leaf]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for part, inner in items:
            yield from _leaves(inner, (*path, part))
    else:
        yield _Leaf("/".join(map(str, path)), path, space)


def convert_observation_space(space: Space) -> tuple[Space, Convert | None]:
    """(plain space, function that converts an observation to it); the function is None if nothing changes."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        plain = _plain_leaf(space, "")
        return plain, None if plain is space else _leaf_to_plain(space)
    leaves = list(_leaves(space))
    if not leaves:
        raise EnvError(f"the observation space {space} is empty")
    plain_leaves = {leaf.key: _plain_observation(leaf) for leaf in leaves}
    if len(plain_leaves) != len(leaves):
        names = sorted(leaf.key for leaf in leaves)
        raise EnvError(f"observation keys collide when nested spaces become 'a/b' names: {names}; rename one of them")
    flat = isinstance(space, spaces.Dict) and all(leaf.path == (leaf.key,) for leaf in leaves)
    if flat and all(plain_leaves[leaf.key] is leaf.space for leaf in leaves):
        return space, None
    steps = [(leaf.key, leaf, _observation_step(leaf, plain_leaves[leaf.key])) for leaf in leaves]
    return spaces.Dict(plain_leaves), lambda obs: {key: step(leaf.get(obs)) for key, leaf, step in steps}


def _plain_observation(leaf: _Leaf) -> Space:
    """The plain space of a leaf; an action mask becomes MultiBinary, whatever space the environment declares."""
    if leaf.key == ACTION_MASK and leaf.space.shape and not isinstance(leaf.space, spaces.MultiBinary):
        return spaces.MultiBinary(int(np.prod(leaf.space.shape)))
    return _plain_leaf(leaf.space, leaf.key)


def _observation_step(leaf: _Leaf, plain: Space) -> Convert:
    if plain is leaf.space:
        return lambda value: value
    if leaf.key == ACTION_MASK:
        return lambda value: np.asarray(value, np.int8).reshape(-1)
    return _leaf_to_plain(leaf.space)


# -- actions ----------------------------------------------------------------------------------------------------------


def convert_action_space(space: Space) -> tuple[Space, Convert | None]:
    """(plain space, function that converts its actions back to the environment's); None if nothing changes.

    Dict and Tuple actions become one MultiDiscrete if all leaves are discrete, one Box if all are Boxes.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        plain = _plain_leaf(space, "")
        return plain, None if plain is space else _leaf_from_plain(space)
    leaves = list(_leaves(space))
    plain_leaves = [_plain_leaf(leaf.space, leaf.key) for leaf in leaves]
    if leaves and all(isinstance(plain, spaces.Box) for plain in plain_leaves):
        low = np.concatenate([plain.low.reshape(-1) for plain in plain_leaves if isinstance(plain, spaces.Box)])
        high = np.concatenate([plain.high.reshape(-1) for plain in plain_leaves if isinstance(plain, spaces.Box)])
        joined: Space = spaces.Box(low, high, dtype=np.result_type(*map(_dtype, plain_leaves)).type)
        sizes = [int(np.prod(plain.shape or ())) for plain in plain_leaves]
    elif leaves and not any(isinstance(plain, spaces.Box) for plain in plain_leaves):
        choices = [_choices(plain) for plain in plain_leaves]
        joined = spaces.MultiDiscrete(np.concatenate(choices))
        sizes = [len(nvec) for nvec in choices]
    else:
        raise EnvError(
            f"cannot convert the action space {space}: actions must be all discrete or all continuous, not a mixture; "
            "write a wrapper that makes them one kind (env.wrappers)"
        )
    ends = np.cumsum(sizes)
    parts = {
        leaf.path: (slice(end - size, end), _leaf_from_vector(leaf.space))
        for leaf, size, end in zip(leaves, sizes, ends.tolist(), strict=True)
    }
    return joined, lambda action: _assemble(space, (), np.asarray(action), parts)


def _choices(plain: Space) -> Any:
    if isinstance(plain, spaces.Discrete):
        return [int(plain.n)]
    if isinstance(plain, spaces.MultiDiscrete):
        return plain.nvec
    assert isinstance(plain, spaces.MultiBinary)
    return [2] * int(plain.shape[0])


def _leaf_from_vector(space: Space) -> Convert:
    convert = _leaf_from_plain(space)
    return (lambda vector: convert(vector[0])) if isinstance(space, spaces.Discrete) else convert


def _assemble(space: Space, path: tuple[Any, ...], action: Any, parts: Mapping[tuple[Any, ...], Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _assemble(inner, (*path, key), action, parts) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_assemble(inner, (*path, i), action, parts) for i, inner in enumerate(space.spaces))
    where, convert = parts[path]
    return convert(action[where])


# -- the wrapper ------------------------------------------------------------------------------------------------------


class ConvertSpaces(gym.Wrapper[Any, Any, Any, Any]):
    """Returns plain observations and takes plain actions."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.observation_space, self._convert_obs = convert_observation_space(env.observation_space)
        self.action_space, self._convert_action = convert_action_space(env.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return (obs if self._convert_obs is None else self._convert_obs(obs)), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self._convert_action is not None:
            action = self._convert_action(action)
        obs, reward, terminated, truncated, info = self.env.step(action)
        return (obs if self._convert_obs is None else self._convert_obs(obs)), reward, terminated, truncated, info


def convert_spaces(env: Env) -> Env:
    """`env` in a `ConvertSpaces` wrapper, or `env` itself if its spaces are plain already."""
    wrapped = ConvertSpaces(env)
    return env if wrapped._convert_obs is None and wrapped._convert_action is None else wrapped
