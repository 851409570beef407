"""The observation and action space of a run as JSON beside its config, read back without building the environment.

A policy can thus be loaded where its environment cannot be built, and an environment with other spaces is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.numerics.agents import joint_spec
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import atomic_write
from rl_training.types import (
    CRITIC_STATE,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    EnvError,
    JointSpec,
    LeafSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    PlayedAgents,
    RunError,
    SpaceSpec,
)

FILE = "configs/spaces.json"
MAX_BYTES = 2**24
MAX_VALUES = 10**8
"""Largest number of values in one space that is read back."""
Spaces = tuple[SpaceSpec, SpaceSpec]
"""Observation space and action space."""


def save_spaces(folder: Path, spaces: Spaces) -> None:
    """Write `configs/spaces.json` into a run directory."""
    record = {"observation": plain_space(spaces[0]), "action": plain_space(spaces[1])}
    with readable_errors(f"cannot write {FILE} in '{folder}'"):
        atomic_write(folder / FILE, json.dumps(record).encode() + b"\n")


def read_spaces(folder: Path) -> Spaces | None:
    """The spaces of a run directory; None if they were not recorded (runs of version 0.1)."""
    path = folder / FILE
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"cannot read '{path}': {error.strerror}") from error
    try:
        record: Any = json.loads(data) if len(data) <= MAX_BYTES else {}
        return space_of(record["observation"]), space_of(record["action"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise RunError(
            f"'{path}' does not describe spaces ({error}); remove it, and the environment is asked"
        ) from error


def plain_space(space: SpaceSpec) -> dict[str, Any]:
    """A space as JSON values."""
    if isinstance(space, JointSpec):
        policies = {name: _plain_agents(played) for name, played in space.policies.items()}
        state = plain_space(space.spaces[CRITIC_STATE]) if space.state == "env" else space.state
        return {"type": "joint", "policies": policies, "state": state}
    if isinstance(space, DictSpec):
        return {"type": "dict", "spaces": {key: plain_space(leaf) for key, leaf in space.spaces.items()}}
    if isinstance(space, DiscreteSpec):
        return {"type": "discrete", "n": space.n}
    if isinstance(space, MultiDiscreteSpec):
        return {"type": "multi_discrete", "nvec": list(space.nvec)}
    if isinstance(space, MultiBinarySpec):
        return {"type": "multi_binary", "n": space.n}
    bounds = {"low": _plain_bound(space.low), "high": _plain_bound(space.high)}
    return {"type": "box", "shape": list(space.shape), "dtype": space.dtype.name, **bounds}


def space_of(record: Any) -> SpaceSpec:
    """The inverse of `plain_space`; ValueError, TypeError or KeyError for anything else."""
    if record["type"] == "joint":
        policies = {str(name): _agents(played) for name, played in record["policies"].items()}
        state = record["state"]
        own = None if isinstance(state, str) else _leaf(state)
        if own is not None and not isinstance(own, BoxSpec):
            raise ValueError("a state that is no Box")
        return joint_spec(policies, own, concat=state == "concat")
    if record["type"] == "dict":
        return DictSpec({str(key): _leaf(leaf) for key, leaf in record["spaces"].items()})
    return _leaf(record)


def _leaf(record: Mapping[str, Any]) -> LeafSpec:
    kind = record["type"]
    if kind == "discrete":
        return DiscreteSpec(_count(record["n"]))
    if kind == "multi_discrete":
        return MultiDiscreteSpec(tuple(map(_count, record["nvec"])))
    if kind == "multi_binary":
        return MultiBinarySpec(_count(record["n"]))
    if kind != "box":
        raise ValueError(f"unknown space {kind!r}")
    dtype, shape = np.dtype(record["dtype"]), tuple(map(_count, record["shape"]))
    if dtype.kind not in "fiub" or math.prod(shape) > MAX_VALUES:
        raise ValueError(f"a Box of shape {shape} and dtype {dtype}")
    return BoxSpec(_bound(record["low"], shape, dtype), _bound(record["high"], shape, dtype), dtype)


def _plain_agents(played: PlayedAgents) -> dict[str, Any]:
    spaces = {"observation": plain_space(played.observation_space), "action": plain_space(played.action_space)}
    return {"agents": list(played.agents), **spaces}


def _agents(record: Mapping[str, Any]) -> PlayedAgents:
    observation = space_of(record["observation"])
    if isinstance(observation, JointSpec):
        raise ValueError("agents inside of agents")
    return PlayedAgents(tuple(map(str, record["agents"])), observation, _leaf(record["action"]))


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_VALUES:
        raise ValueError(f"{value!r} is not a size")
    return value


def _plain_bound(values: Any) -> Any:
    """A bound as one number if all are equal, else as a list; infinities, which JSON lacks, as text."""
    flat = np.asarray(values).reshape(-1).tolist()
    plain = [str(value) if isinstance(value, float) and not math.isfinite(value) else value for value in flat]
    return plain[0] if plain and all(value == plain[0] for value in plain) else plain


def _bound(plain: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    numbers = (
        [float(value) if isinstance(value, str) else value for value in plain] if isinstance(plain, list) else None
    )
    values = float(plain) if isinstance(plain, str) else plain if numbers is None else np.reshape(numbers, shape)
    return np.broadcast_to(np.asarray(values, dtype), shape).copy()


# -- comparing --------------------------------------------------------------------------------------------------------


def describe(space: SpaceSpec) -> str:
    """A space as a short text.

    >>> describe(DictSpec({"goal": DiscreteSpec(3), "x": MultiBinarySpec(2)}))
    'Dict(goal: Discrete(3), x: MultiBinary(2))'
    """
    if isinstance(space, JointSpec):
        played = (
            f"{name}: {who.count} x {describe(who.observation_space)} -> {describe(who.action_space)}"
            for name, who in space.policies.items()
        )
        return f"Agents({', '.join(played)})"
    if isinstance(space, DictSpec):
        return f"Dict({', '.join(f'{key}: {describe(leaf)}' for key, leaf in space.spaces.items())})"
    if isinstance(space, DiscreteSpec):
        return f"Discrete({space.n})"
    if isinstance(space, MultiDiscreteSpec):
        return f"MultiDiscrete({list(space.nvec)})"
    if isinstance(space, MultiBinarySpec):
        return f"MultiBinary({space.n})"
    return f"Box{space.shape} {space.dtype}"


def check_spaces(run: Path, recorded: Spaces, found: Spaces) -> None:
    """EnvError if an environment's spaces differ from those that the run was trained on."""
    for what, one, other in zip(("observation", "action"), recorded, found, strict=True):
        if not fits(one, other, bounds=what == "action"):
            detail = ""
            if describe(one) == describe(other) and isinstance(one, BoxSpec) and isinstance(other, BoxSpec):
                detail = f" with bounds {_range(one)}, here {_range(other)}"
            raise EnvError(
                f"the environment has the {what} space {describe(other)}, but run '{run}' was trained on "
                f"{describe(one)}{detail}; give the environment that it was trained on"
            )


def fits(one: SpaceSpec, other: SpaceSpec, *, bounds: bool) -> bool:
    """Whether a policy for one space can act in the other: floats may differ in width, action bounds may not differ."""
    if isinstance(one, JointSpec) and isinstance(other, JointSpec):
        played = [{name: who.agents for name, who in joint.policies.items()} for joint in (one, other)]
        actions = all(
            fits(who.action_space, other.policies[name].action_space, bounds=True)
            for name, who in one.policies.items()
            if name in other.policies
        )
        if played[0] != played[1] or not actions:
            return False
    if isinstance(one, DictSpec) and isinstance(other, DictSpec):
        same_keys = one.spaces.keys() == other.spaces.keys()
        return same_keys and all(fits(leaf, other.spaces[key], bounds=bounds) for key, leaf in one.spaces.items())
    if isinstance(one, BoxSpec) and isinstance(other, BoxSpec):
        alike = one.shape == other.shape and one.dtype.kind == other.dtype.kind
        return alike and (not bounds or bool(np.allclose(one.low, other.low) and np.allclose(one.high, other.high)))
    return one == other


def _range(box: BoxSpec) -> str:
    return f"{_plain_bound(box.low)} to {_plain_bound(box.high)}"
