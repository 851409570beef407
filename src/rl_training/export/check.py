"""Whether a file does what its policy does: the same observations to both, step by step, and the file on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.export.graph import PolicyGraph, Value
from rl_training.types import (
    ACTION_MASK,
    REWARD,
    ActResult,
    Array,
    BoxSpec,
    Carry,
    DiscreteSpec,
    MultiDiscreteSpec,
    Obs,
    Policy,
    RLTrainingError,
    SpaceSpec,
    StateDict,
)

TOLERANCE = 1e-5
"""Largest difference of real actions, relative to actions above 1; discrete ones must agree where the two best logits
are further apart than this."""

ROUNDINGS = 16
"""Where this many roundings of a logit are more than `TOLERANCE` (from 8 on), choices nearer than them are near-ties:
files sum action values of some hundreds in another order."""

Runner = Callable[[Mapping[str, Array]], dict[str, Array]]
"""A file as a function from inputs to outputs, by name."""


class ExportError(RLTrainingError):
    """A file that does not do what its policy does; it is not kept."""


def own_name(name: str) -> str:
    """Name in a carry of an input "carry/...": the last reward has that under which environments are played."""
    return REWARD if name == f"carry/{REWARD}" else name


def file_name(name: str) -> str:
    """The inverse of `own_name`."""
    return f"carry/{REWARD}" if name == REWARD else name


class FilePolicy:
    """An exported file behind the `Policy` interface; it is always greedy."""

    def __init__(self, run: Runner, inputs: tuple[Value, ...]) -> None:
        self.run = run
        self.inputs = inputs

    @classmethod
    def of(cls, run: Runner, graph: PolicyGraph) -> FilePolicy:
        """A file that was written from this graph."""
        return cls(run, graph.inputs)

    def initial_carry(self, num_envs: int) -> Carry:
        carries = [value for value in self.inputs if value.name.startswith("carry/")]
        return {own_name(value.name): np.zeros((num_envs, *value.shape), value.dtype) for value in carries}

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        outputs = self.run(self.feeds(obs, carry, is_first))
        after = {name: outputs[f"next_{file_name(name)}"] for name in carry}
        extras = {"logits": outputs["logits"]} if "logits" in outputs else {}
        return ActResult(outputs["actions"], outputs["actions"], after, extras)

    def feeds(self, obs: Obs, carry: Carry, is_first: Array) -> dict[str, Array]:
        """The inputs of the file, each in its own type; observations that it does not ask for are left out."""
        named = {"obs": obs}
        if isinstance(obs, dict):
            named = {key if key == ACTION_MASK else f"obs/{key}": value for key, value in obs.items()}
        remembered = {file_name(name): value for name, value in carry.items()}
        given: dict[str, Any] = {**named, **remembered, "is_first": is_first}
        return {value.name: np.asarray(given[value.name], value.dtype) for value in self.inputs}

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict, /) -> None:
        pass  # a file is what it is


@dataclass
class Agreement:
    """What a comparison found."""

    rows: int = 0
    largest: float = 0.0
    """Largest difference of real actions."""
    near_ties: int = 0
    """Choices whose two best logits are so close that either is right."""

    def text(self) -> str:
        """In words."""
        ties = f", {self.near_ties:,} near-ties" if self.near_ties else ""
        return f"{self.rows:,} observations, largest difference {self.largest:.1e}{ties}"


class CheckedPolicy:
    """The original policy, which acts, with a file beside it that is shown the same; ExportError where they differ."""

    def __init__(self, policy: Policy, file: FilePolicy, action_space: SpaceSpec) -> None:
        self.policy, self.file, self.action_space = policy, file, action_space
        self.agreement = Agreement()

    def initial_carry(self, num_envs: int) -> Carry:
        beside = self.file.initial_carry(num_envs)
        return {**self.policy.initial_carry(num_envs), **{f"file/{name}": value for name, value in beside.items()}}

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        own = {name: value for name, value in carry.items() if not name.startswith("file/")}
        files = {name.removeprefix("file/"): value for name, value in carry.items() if name.startswith("file/")}
        if REWARD in own and REWARD in files:  # whoever steps the environment tells the policy alone
            files[REWARD] = own[REWARD]
        result = self.policy.act(obs, own, is_first, rng, deterministic=True)
        beside = self.file.act(obs, files, is_first, rng, deterministic=True)
        compare(self.action_space, result.env_actions, beside, self.agreement)
        after = {f"file/{name}": value for name, value in beside.carry.items()}
        return ActResult(result.actions, result.env_actions, {**result.carry, **after}, result.extras)

    def state_dict(self) -> StateDict:
        return self.policy.state_dict()

    def load_state_dict(self, state: StateDict, /) -> None:
        self.policy.load_state_dict(state)


def compare(space: SpaceSpec, actions: Array, beside: ActResult, agreement: Agreement) -> None:
    """Add one step to an agreement: actions of the policy, and what the file gave."""
    agreement.rows += len(actions)
    if beside.env_actions.shape != actions.shape:
        raise ExportError(f"the file gave actions of shape {beside.env_actions.shape}, the policy {actions.shape}")
    if isinstance(space, BoxSpec):
        expected = actions.astype(np.float64)
        differences = np.abs(beside.env_actions - expected)
        # bounds further apart than the largest float: a difference is a share of them, not of an action near 0
        scale = np.maximum(np.abs(space.low), np.abs(space.high)) if space.is_wide else np.abs(expected)
        if not (differences <= TOLERANCE * np.maximum(1.0, scale)).all():  # NaN is a difference too
            largest = float(differences.max())
            raise ExportError(f"the file's actions differ from the policy's by {largest:.2e}, more than {TOLERANCE}")
        agreement.largest = max(agreement.largest, float(differences.max(initial=0.0)))
        return
    chosen, ahead = best_options(space, beside.extras["logits"])
    near = ahead <= np.maximum(TOLERANCE, ROUNDINGS * np.spacing(np.abs(chosen).astype(np.float32)))
    agreement.near_ties += int(near.sum())
    wrong = (actions != beside.env_actions) & ~near.reshape(actions.shape)
    if wrong.any():
        raise ExportError(
            f"{int(wrong.sum())} of {wrong.size} choices of the file differ from the policy's where its two best "
            f"logits are more than {TOLERANCE} ({ROUNDINGS} roundings of large ones) apart"
        )


def best_options(space: SpaceSpec, logits: Array) -> tuple[Array, Array]:
    """The logit of the best option of each choice, and how far it is ahead of the next, both (B, choices).

    >>> [part.tolist() for part in best_options(DiscreteSpec(3), np.array([[1.0, 4.0, 3.5]]))]
    [[[4.0]], [[0.5]]]
    """
    if not isinstance(space, DiscreteSpec | MultiDiscreteSpec):
        return logits, np.abs(logits)
    sizes = (space.n,) if isinstance(space, DiscreteSpec) else space.nvec
    parts = np.split(logits, np.cumsum(sizes)[:-1], axis=1)
    return np.stack([part.max(1) for part in parts], axis=1), np.stack([margin(part) for part in parts], axis=1)


def margin(logits: Array) -> Array:
    """The largest minus the second largest of each row; infinite where there is one only."""
    if logits.shape[1] == 1:
        return np.full(len(logits), np.inf)
    second, best = np.partition(logits, -2, axis=1)[:, -2:].T
    return np.asarray(best - second)
