"""NaN and Inf guard: cheap checks all the time, the search for the tensor to blame only after one of them fails.

At the level `cheap`, the default of `monitor.checks`, these are checked:

- actions, before an environment receives them;
- a rollout, before it is learnt from: observations, actions, rewards and whatever else the batch holds;
- the gradient norm, which clipping computes anyway, before each optimiser step, so that a non-finite gradient never
  reaches a parameter. On a GPU reading it would stall the device at every minibatch; there it is one of the metrics,
  read once after the update;
- after the update: its metrics, and the parameters, moments and statistics that the algorithm lists in `watched`;
- everything that goes into a checkpoint, before it is written.

A check is one pass over an array. `full` checks before each optimiser step on every device, and every array of policy
and algorithm after each update; `off` checks nothing.

Algorithms only say what they hold (`watched`, `Held`); the order in which it is searched is decided here.

An algorithm of your own is guarded too: by its batch, by the metrics it returns (leave out a metric that has no value
instead of returning NaN) and, before each checkpoint, by its state. With a method `watched()`, which `BaseAlgorithm`
has, its parameters are checked after every update; with `ctx.guard.check_gradients` a non-finite gradient stops before
it is applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np

from rl_training.types import Array, Batch, Carry, Metrics, NonFiniteError, Obs, Policy, Progress, StateDict, VectorStep

Suspects = Iterable[tuple[str, Any]]
"""(prefix of the name, array, number or nested dict of them), causes before effects: the first hit is named."""

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
    """The first non-finite value found, and the name of its tensor."""

    name: str
    value: float
    cure: str = FROM_LEARNING


def counted(check: Check) -> Check:
    """Decorator for checks: they do nothing when the guard is off, and add their own time to `Guard.seconds`."""

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


@dataclass(frozen=True)
class Held:
    """What an algorithm holds just before an optimiser step, as trees of arrays.

    The keys of optimizers, parameters, targets and gradients are the names of networks; a lone network is named "".
    """

    optimizers: Mapping[str, Any]
    """State of the optimiser that is about to step."""
    parameters: Mapping[str, Any]
    gradients: Mapping[str, Any]
    """Gradients that the optimiser is about to apply."""
    losses: Mapping[str, Any]
    targets: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of target networks."""
    normalizer: Mapping[str, Any] | None = None
    """Statistics of observations."""
    reward_normalizer: Mapping[str, Any] | None = None
    batch: Mapping[str, Any] | None = None
    """Transitions drawn from replay; a rollout is checked as a whole before it is learnt from."""


class Guard:
    """Checks what flows through a train step; raises `NonFiniteError`. `level` is `monitor.checks`: off, cheap, full.

    `progress` is the live progress of the run: an error says in which update the value appeared.
    """

    def __init__(self, level: str = "cheap", progress: Progress | None = None) -> None:
        self.level = level
        self.progress = Progress() if progress is None else progress
        self.clock = perf_counter
        self.seconds = 0.0
        """Time spent in checks, measured with `clock`; logged as time/guard_seconds."""

    def take_seconds(self) -> float:
        """The time spent in checks since this was last called."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def add_seconds(self, seconds: float) -> None:
        """Count time that was spent in the checks of another guard of the run."""
        self.seconds += seconds

    def every_step(self, device: str) -> bool:
        """Whether gradients on `device` are checked before each optimiser step: not where that stalls the device."""
        return self.level == "full" or (self.level == "cheap" and device == "cpu")

    @counted
    def check_actions(self, actions: Array, step: int, obs: Obs, carry: Carry, policy: Policy) -> None:
        """Check actions before the environments receive them: some simulators crash on a NaN, others go on silently.

        `obs`, `carry` and `policy` are what the actions were computed from; one of them may be to blame.
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
        """Check one step of all environments before it goes into a replay buffer; sums are checked first, for speed."""
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
        """Check every array of a rollout or replay batch before it is learnt from."""
        if not all_finite(batch):
            raise self.error(earliest(batch, list(bad_leaves(batch, ""))))

    @counted
    def check_gradients(self, norm: Any, suspects: Callable[[], Suspects], loss: Any = 0.0) -> None:
        """Check the norm of all gradients, and the loss, before the optimiser steps.

        `suspects` is only called where one of them is not finite. An algorithm that fills a `Held` record gets the
        right order from `gradient_suspects`.
        """
        if not (math.isfinite(norm) and math.isfinite(loss)):
            raise self.error(search(suspects()) or Finding("gradient norm", float(norm)))

    @counted
    def check_update(
        self,
        metrics: Metrics,
        watched: Callable[[], Iterable[Any]],
        suspects: Callable[[], Suspects],
        before: Progress,
    ) -> None:
        """Check an update that began at `before`: its metrics, then the tensors that `watched` lists.

        `suspects` gives the same state by name; it is searched after a hit, and at the level `full` always.
        """
        losses = {name: value for name, value in metrics.items() if name.startswith("train/")}
        if not all(map(math.isfinite, losses.values())):
            name, value = next((n, v) for n, v in total_last(losses).items() if not math.isfinite(v))
            hint = "" if self.level == "full" else SEARCH_HINT
            raise self.error(Finding(name, float(value), FROM_LEARNING + hint), before)
        bad = [number for number, tensor in enumerate(watched()) if not is_finite(tensor)]
        if bad or self.level == "full":
            found = search(suspects())
            if found is None and bad:
                found = Finding(f"number {bad[0]} of what watched() lists", math.nan)
            if found is not None:
                raise self.error(found, before)

    @counted
    def check_state(self, suspects: Suspects) -> None:
        """Check everything that is about to be saved, or was just loaded."""
        if found := search(suspects):
            at = self.progress
            raise NonFiniteError(
                f"{found.name} is {found.value} at env step {at.env_steps}, after update {at.updates}: {found.cure}. "
                "No checkpoint is written with it",
                name=found.name,
            )

    def error(self, found: Finding, before: Progress | None = None) -> NonFiniteError:
        """Make the error that names the tensor, the update and the cure."""
        at = before or self.progress
        return NonFiniteError(
            f"{found.name} is {found.value} in update {at.updates + 1}, which began at env step {at.env_steps}: "
            f"{found.cure}. Nothing of this update is saved: the last checkpoint is from before it",
            name=found.name,
        )


def part_suspects(parts: Mapping[str, StateDict]) -> Suspects:
    """Name the states of a trainer's parts as errors do; those of the algorithm, with the optimiser's, come first."""
    for part, state in sorted(parts.items(), key=lambda item: item[0] != "algorithm"):
        if part not in ("policy", "algorithm"):
            yield f"{part}/", state
            continue
        for key, tree in state.items():
            if isinstance(tree, Mapping):
                yield ("parameter " if key == "network" else f"{key}/"), tree
            else:
                yield key, tree


def gradient_suspects(held: Held) -> Suspects:
    """Possible sources of a non-finite gradient, causes before effects: data, optimiser state, statistics, parameters,
    losses, gradients."""
    if held.batch is not None:
        yield "sampled ", {name: value for name, value in held.batch.items() if name != "indices"}
    for name, state in held.optimizers.items():
        yield (f"optimizer/{name}/" if name else "optimizer/"), state
    if held.reward_normalizer is not None:
        # running returns feed the statistics, so they are searched first, whatever the order of the state
        yield "reward_normalizer/open_returns", held.reward_normalizer["open_returns"]
        yield "reward_normalizer/statistics/", held.reward_normalizer["statistics"]
    if held.normalizer is not None:
        yield "normalizer/", held.normalizer
    for kind, networks in (("parameter", held.parameters), ("target", held.targets)):
        for name, state in networks.items():
            yield (f"{kind} {name}." if name else f"{kind} "), state
    yield "train/", total_last(held.losses)
    for name, state in held.gradients.items():
        yield (f"gradient of {name}." if name else "gradient of "), state


def search(suspects: Suspects) -> Finding | None:
    """Find the first non-finite value among the suspects."""
    for prefix, tree in suspects:
        for path, value in bad_leaves(tree, ""):
            name = prefix + path
            cure = FROM_ENVIRONMENT if name.startswith(NOT_LEARNT) else FROM_LEARNING
            return Finding(name, float(value[first_bad_index(value)]), cure)
    return None


def total_last(losses: Mapping[str, Any]) -> dict[str, Any]:
    """The same losses with the total behind its terms: a non-finite term makes the total non-finite, not vice versa."""
    return dict(sorted(losses.items(), key=lambda item: item[0] in ("loss", "train/loss")))


# -- finding non-finite values ----------------------------------------------------------------------------------------


def is_finite(value: Any) -> bool:
    """Whether an array or tensor holds only finite values; integers and booleans always do.

    A reduction is checked first: the sum of squares, by BLAS, or on a GPU the sum. It is non-finite if any element is;
    it may also overflow, so only then are the elements checked one by one.
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
    """Whether nested dicts hold finite arrays and tensors only; the cheap check, which builds no names."""
    if isinstance(tree, Mapping):
        return all(map(all_finite, tree.values()))
    return not hasattr(tree, "dtype") or is_finite(tree)


def as_array(value: Any) -> Array:
    """Turn an array or a float tensor into a NumPy array; bfloat16, which NumPy does not have, becomes float32."""
    return np.asarray(value.detach().cpu().float() if hasattr(value, "detach") else value)


def leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Iterate over every array, tensor and float below `tree` with its path."""
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
    """Iterate over the leaves that hold non-finite values, as arrays."""
    for path, leaf in leaves(tree, name):
        if not is_finite(leaf):
            yield path, as_array(leaf)


def first_bad_index(value: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])


# -- batches ----------------------------------------------------------------------------------------------------------


def earliest(batch: Batch, bad: list[tuple[str, Array]]) -> Finding:
    """The non-finite value of a batch that appeared first: an observation before the action taken on it, and so on."""
    return min((locate(batch, name, value) for name, value in bad), key=lambda located: located[0])[1]


def locate(batch: Batch, name: str, value: Array) -> tuple[tuple[int, int], Finding]:
    """When the first non-finite value of an array appeared (step, order within the step), and how to name it."""
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
    """The first non-finite value of an array whose rows are environments or transitions."""
    index = first_bad_index(value)
    return Finding(f"{name} {where} {index[0]}", float(value[index]), cure)
