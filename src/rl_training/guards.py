"""NaN and Inf guard: a cheap look first, the search for the culprit only after a hit.

What is looked at, and when, at the level `cheap` (the default of `monitor.checks`):

- actions, before an environment receives them;
- a rollout, before it is learnt from: observations, actions, rewards, and what else the batch holds;
- the gradient's norm, which clipping computes anyway, before each optimiser step, so that a bad gradient never reaches
  a parameter. On a GPU reading it would stall the device at every minibatch; there it is one of the metrics, read once
  after the update;
- after the update: its metrics, and the parameters, moments and statistics that the algorithm lists in `watched`;
- everything that goes into a checkpoint, before it is written.

A look is one pass over an array. `full` looks before each optimiser step on every device and at every array of
policy and algorithm after each update; `off` never looks.

An algorithm of your own is guarded too: by its batch, by the metrics it returns (one that has no value is left out, not
NaN) and, before each checkpoint, by its state. With a method `watched()`, which `BaseAlgorithm` has, its parameters are
looked at after every update; with `ctx.guard.check_gradients` a bad gradient stops before it is applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np

from rl_training.types import Array, Batch, Carry, Metrics, NonFiniteError, Obs, Policy, Progress, StateDict, VectorStep

Suspects = Iterable[tuple[str, Any]]
"""(prefix of the name, array, number or nested dict of them), in the order in which one would have spoilt the next."""

FROM_ENVIRONMENT = (
    "the environment or a wrapper gave it, or a number too large for its dtype; look at it with "
    "rl_training.envs.check_env"
)
FROM_POLICY = "the policy gave it for finite observations; look at its act() and at the scale of its outputs"
FROM_LEARNING = (
    "the update went wrong; lower hparams.learning_rate, set hparams.max_grad_norm, or normalise what is learnt from "
    "(env.normalize_obs, env.normalize_reward)"
)
SEARCH_HINT = "; monitor.checks: full looks before every optimiser step"
NOT_LEARNT = ("env/", "collector/", "normalizer/", "reward_normalizer/")

Check = TypeVar("Check", bound=Callable[..., None])


@dataclass(frozen=True)
class Finding:
    """A number that is none, and the name of the tensor that holds it."""

    name: str
    value: float
    cure: str = FROM_LEARNING


def counted(check: Check) -> Check:
    """A check that does nothing when the guard is off and otherwise adds its own time to `Guard.seconds`."""

    @wraps(check)
    def run(guard: Guard, *args: Any, **kwargs: Any) -> None:
        if guard.level == "off":
            return
        began = guard.clock()
        try:
            check(guard, *args, **kwargs)
        finally:
            guard.seconds += guard.clock() - began

    return cast(Check, run)


class Guard:
    """Checks what flows through a train step; raises `NonFiniteError`. `level` is `monitor.checks`: off, cheap, full.

    `progress` is the run's live one: an error says in which update the number appeared.
    """

    def __init__(self, level: str = "cheap", progress: Progress | None = None) -> None:
        self.level = level
        self.progress = Progress() if progress is None else progress
        self.clock = perf_counter
        self.seconds = 0.0
        """Time spent in checks, by `clock`; logged as time/guard_seconds."""

    def every_step(self, device: str) -> bool:
        """Whether gradients on `device` are looked at before each optimiser step: not where that stalls the device."""
        return self.level == "full" or (self.level == "cheap" and device == "cpu")

    @counted
    def check_actions(self, actions: Array, step: int, obs: Obs, carry: Carry, policy: Policy) -> None:
        """Before the environments receive them: some simulators crash on a NaN, others quietly go on.

        `obs`, `carry` and `policy` are what the actions were made from; one of them may be to blame.
        """
        if is_finite(actions):
            return
        for key, tree, cure in (("obs", obs, FROM_ENVIRONMENT), ("carry", carry, FROM_POLICY)):
            for name, value in bad_leaves(tree, key):
                raise self.error(at_row(name, value, f"at step {step} of environment", cure))
        if found := search(part_suspects({"policy": policy.state_dict()})):
            raise self.error(found)
        raise self.error(at_row("actions", actions, f"at step {step} of environment", FROM_POLICY))

    @counted
    def check_step(self, step: VectorStep) -> None:
        """One step of all environments, before it goes into a replay buffer; a sum is quicker than a look."""
        if isinstance(step.obs, dict) or isinstance(step.next_obs, dict):
            finite = all_finite({"obs": step.obs, "rewards": step.rewards, "next_obs": step.next_obs})
        else:
            finite = all(
                array.dtype.kind != "f" or math.isfinite(float(np.add.reduce(array, axis=None))) or is_finite(array)
                for array in (step.obs, step.rewards, step.next_obs)
            )
        if not finite:
            tree = {"obs": step.obs, "rewards": step.rewards, "next_obs": step.next_obs}
            name, value = next(iter(bad_leaves(tree, "")))
            raise self.error(at_row(name, value, "of environment", FROM_ENVIRONMENT))

    @counted
    def check_batch(self, batch: Batch) -> None:
        """Every array of a rollout or replay batch, before it is learnt from."""
        if not all_finite(batch):
            raise self.error(earliest(batch, list(bad_leaves(batch, ""))))

    @counted
    def check_gradients(self, norm: Any, suspects: Callable[[], Suspects], loss: Any = 0.0) -> None:
        """The norm of all gradients, and the loss, before the optimiser steps. `suspects` are searched after a hit."""
        if not (math.isfinite(norm) and math.isfinite(loss)):
            raise self.error(search(suspects()) or Finding("gradient norm", float(norm)))

    @counted
    def check_update(
        self, metrics: Metrics, algorithm: Any, suspects: Callable[[], Suspects], before: Progress
    ) -> None:
        """After an update that began at `before`: its metrics, then the state it left behind."""
        losses = {name: value for name, value in metrics.items() if name.startswith("train/")}
        if not all(map(math.isfinite, losses.values())):
            name, value = next((n, v) for n, v in total_last(losses).items() if not math.isfinite(v))
            hint = "" if self.level == "full" else SEARCH_HINT
            raise self.error(Finding(name, float(value), FROM_LEARNING + hint), before)
        tensors = algorithm.watched() if hasattr(algorithm, "watched") else ()
        bad = [number for number, tensor in enumerate(tensors) if not is_finite(tensor)]
        if bad or self.level == "full":
            found = search(suspects())
            if found is None and bad:
                found = Finding(f"number {bad[0]} of what watched() lists", math.nan)
            if found is not None:
                raise self.error(found, before)

    @counted
    def check_state(self, suspects: Suspects) -> None:
        """Everything that is about to be saved, or was loaded."""
        if found := search(suspects):
            at = self.progress
            raise NonFiniteError(
                f"{found.name} is {found.value} at env step {at.env_steps}, after update {at.updates}: {found.cure}. "
                "No checkpoint is written with it",
                name=found.name,
            )

    def error(self, found: Finding, before: Progress | None = None) -> NonFiniteError:
        """The error that names the tensor, the update and the cure."""
        at = before or self.progress
        return NonFiniteError(
            f"{found.name} is {found.value} in update {at.updates + 1}, which began at env step {at.env_steps}: "
            f"{found.cure}. Nothing of this update is saved: the last checkpoint is from before it",
            name=found.name,
        )


def part_suspects(parts: Mapping[str, StateDict]) -> Suspects:
    """The states of a trainer's parts under the names that errors use; what the optimiser remembers comes first."""
    for part, state in sorted(parts.items(), key=lambda item: item[0] != "algorithm"):
        if part not in ("policy", "algorithm"):
            yield f"{part}/", state
            continue
        for key, tree in state.items():
            if isinstance(tree, Mapping):
                yield ("parameter " if key == "network" else f"{key}/"), tree
            else:
                yield key, tree


def search(suspects: Suspects) -> Finding | None:
    """The first bad number among the suspects."""
    for prefix, tree in suspects:
        for path, value in bad_leaves(tree, ""):
            name = prefix + path
            cure = FROM_ENVIRONMENT if name.startswith(NOT_LEARNT) else FROM_LEARNING
            return Finding(name, float(value[first_bad_index(value)]), cure)
    return None


def total_last(losses: Mapping[str, Any]) -> dict[str, Any]:
    """The same losses with their sum behind its terms: a bad term is the culprit, the sum its victim."""
    return dict(sorted(losses.items(), key=lambda item: item[0] in ("loss", "train/loss")))


# -- looking ----------------------------------------------------------------------------------------------------------


def is_finite(value: Any) -> bool:
    """Whether an array or tensor holds only finite numbers; integers and booleans always do.

    One number made of all is looked at: the sum of squares, by BLAS, or on a GPU the sum. It is not finite if any of
    them is not; it may also overflow, hence the second look.
    """
    if isinstance(value, np.ndarray):
        return value.dtype.kind != "f" or math.isfinite(np.vdot(value, value)) or bool(np.isfinite(value).all())
    tensor = value.detach()
    if not tensor.is_floating_point():
        return True
    if tensor.is_cpu and tensor.element_size() >= 4:  # NumPy has no bfloat16
        return is_finite(tensor.numpy())
    return math.isfinite(tensor.sum()) or bool(tensor.isfinite().all())


def all_finite(tree: Any) -> bool:
    """The cheap look at nested dicts of arrays and tensors: names come later, if at all."""
    if isinstance(tree, Mapping):
        return all(map(all_finite, tree.values()))
    return not hasattr(tree, "dtype") or is_finite(tree)


def as_array(value: Any) -> Array:
    """An array or a tensor of floats as a NumPy array; bfloat16, which NumPy does not know, becomes float32."""
    return np.asarray(value.detach().cpu().float() if hasattr(value, "detach") else value)


def leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every array, tensor and float below `tree` with its path."""
    if isinstance(tree, Mapping):
        for key, inner in tree.items():
            yield from leaves(inner, f"{name}/{key}" if name else str(key))
    elif isinstance(tree, list | tuple):
        yield from leaves(dict(enumerate(tree)), name)
    elif isinstance(tree, float | np.generic):
        yield name, np.asarray(tree)
    elif hasattr(tree, "dtype"):
        yield name, tree


def bad_leaves(tree: Any, name: str) -> Iterator[tuple[str, Array]]:
    """The leaves that are not finite, as arrays."""
    for path, leaf in leaves(tree, name):
        if not is_finite(leaf):
            yield path, as_array(leaf)


def first_bad_index(value: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])


# -- batches ----------------------------------------------------------------------------------------------------------


def earliest(batch: Batch, bad: list[tuple[str, Array]]) -> Finding:
    """The bad number of a batch that came first: an observation before the action taken on it, and so on."""
    return min((locate(batch, name, value) for name, value in bad), key=lambda located: located[0])[1]


def locate(batch: Batch, name: str, value: Array) -> tuple[tuple[int, int], Finding]:
    """When the first bad number of `value` came (step, order within the step), and how to name it."""
    key = name.split("/")[0]
    if "final_index" not in batch:  # drawn from replay: rows without a time
        return (0, 0), at_row(name, value, "in row", FROM_ENVIRONMENT)
    if key == "initial_carry":
        return (0, 1), at_row(name, value, "of environment", FROM_POLICY)
    num_steps, num_envs = batch["rewards"].shape
    if key == "last_obs":
        return (num_steps, 0), at_row(name, value, "of environment", FROM_ENVIRONMENT)
    index = first_bad_index(value)
    step, env = divmod(int(batch["final_index"][index[0]]), num_envs) if key == "final_obs" else index[:2]
    order = {"obs": 0, "rewards": 2, "final_obs": 3}.get(key, 1)  # 1: what the policy gave, actions and its extras
    cure = FROM_POLICY if order == 1 else FROM_ENVIRONMENT
    return (step, order), Finding(f"{name} at step {step} of environment {env}", float(value[index]), cure)


def at_row(name: str, value: Array, where: str, cure: str) -> Finding:
    """The first bad number of an array whose rows are environments or transitions."""
    index = first_bad_index(value)
    return Finding(f"{name} {where} {index[0]}", float(value[index]), cure)
