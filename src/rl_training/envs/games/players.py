"""Who sits in the other seats: rules, and policies as graphs that NumPy computes. Players have no state of their own,
so that all environments of a process share them; they can be sent to workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from rl_training.export.graph import PolicyGraph
from rl_training.export.numpy_runtime import evaluate
from rl_training.registry import rules
from rl_training.types import ACTION_MASK, Array, Carry, EnvError, Obs, Policy

LATEST = "latest"
"""Name of the learner's present policy among the opponents."""


class Player(Protocol):
    """Chooses moves. `carry` is what it remembers of the game so far, empty at the beginning."""

    def act(self, obs: Obs, carry: Carry, rng: np.random.Generator) -> tuple[int, Carry]: ...


def mask_of(obs: Obs) -> Array | None:
    """The action mask in an observation, where there is one."""
    return obs.get(ACTION_MASK) if isinstance(obs, dict) else None


def without_mask(obs: Obs) -> Any:
    """An observation without its mask: the array itself where nothing else is beside it."""
    if not isinstance(obs, dict):
        return obs
    rest = {key: value for key, value in obs.items() if key != ACTION_MASK}
    return next(iter(rest.values())) if len(rest) == 1 else rest


@dataclass(frozen=True)
class RulePlayer:
    """A function (observation, mask, rng) -> action: a built-in rule, or "rule:package.module:function"."""

    name: str

    @cached_property
    def rule(self) -> Any:
        function = rules.get(self.name)
        if not callable(function):
            raise EnvError(f"rule '{self.name}' is a {type(function).__name__}; it must be a function")
        return function

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name}  # a function is imported where it is used

    def act(self, obs: Obs, carry: Carry, rng: np.random.Generator) -> tuple[int, Carry]:
        mask = mask_of(obs)
        move: Any = self.rule(without_mask(obs), None if mask is None else mask.copy(), rng)
        try:
            return int(move), carry
        except (TypeError, ValueError):
            raise EnvError(f"rule '{self.name}' gave {move!r}; it must give a whole number, the action") from None


@dataclass(frozen=True)
class GraphPlayer:
    """A policy in NumPy: moves are drawn from its probabilities, or greedy for a policy of action values."""

    graph: PolicyGraph
    greedy: bool = False
    """Take the most likely move."""
    _nodes: list[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        nodes = [(node.kind, node.inputs, node.output, dict(node.attributes)) for node in self.graph.nodes]
        object.__setattr__(self, "_nodes", nodes)

    def act(self, obs: Obs, carry: Carry, rng: np.random.Generator) -> tuple[int, Carry]:
        outputs = self.outputs(batch_of(obs), carry)
        following = {name: outputs[f"next_carry/{name}"] for name in self.memory}
        if self.greedy or self.graph.meta["head"] == "values":
            return int(outputs["actions"][0]), following
        weights = np.exp((outputs["logits"][0] - outputs["logits"][0].max()).astype(np.float64)).cumsum()
        return int(np.searchsorted(weights, rng.random() * weights[-1], side="right")), following

    def outputs(self, obs: Obs, carry: Carry | None = None) -> dict[str, Array]:
        """All outputs of the graph for a batch of observations."""
        by_name = {"obs": obs} if not isinstance(obs, dict) else {feed_name(key): value for key, value in obs.items()}
        count = len(next(iter(by_name.values())))
        feeds: dict[str, Array] = {}
        for name, dtype, shape in self.graph.inputs:
            if name.startswith("carry/"):
                held = (carry or {}).get(name.removeprefix("carry/"))
                feeds[name] = np.zeros((count, *shape), dtype) if held is None else held
            elif name == "is_first":
                feeds[name] = np.full(count, not carry)
            else:
                feeds[name] = np.asarray(by_name[name], dtype)
        return evaluate(self._nodes, {**self.graph.constants, **feeds})

    @cached_property
    def memory(self) -> tuple[str, ...]:
        """Names of what the policy remembers."""
        names = (value.name for value in self.graph.inputs)
        return tuple(name.removeprefix("carry/") for name in names if name.startswith("carry/"))


@dataclass(frozen=True)
class PolicyPlayer:
    """Any policy of this process, for evaluation: one without a graph plays too."""

    policy: Policy
    greedy: bool = False

    def act(self, obs: Obs, carry: Carry, rng: np.random.Generator) -> tuple[int, Carry]:
        held = carry or self.policy.initial_carry(1)
        result = self.policy.act(batch_of(obs), held, np.array([not carry]), rng, deterministic=self.greedy)
        return int(result.env_actions[0]), dict(result.carry)


def feed_name(key: str) -> str:
    """The input of a graph that an observation key goes to."""
    return key if key == ACTION_MASK else f"obs/{key}"


def batch_of(obs: Obs) -> Obs:
    """One observation as a batch of one."""
    if isinstance(obs, dict):
        return {key: np.asarray(value)[None] for key, value in obs.items()}
    return np.asarray(obs)[None]


@dataclass(frozen=True)
class Lineup:
    """Opponents to draw from, as an environment is told between two rollouts."""

    chances: Mapping[str, float]
    """Names of all opponents with the probability that a seat is taken by each; they sum to 1."""
    players: Mapping[str, Player]
    """Those that are new or have changed since the last time."""


def only(player: Player, name: str) -> Lineup:
    """One opponent in all other seats."""
    return Lineup({name: 1.0}, {name: player})
