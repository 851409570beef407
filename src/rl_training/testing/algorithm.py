"""`check_algorithm`: whether an algorithm does what the rest of the package relies on."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.registry import algorithms
from rl_training.testing.states import difference
from rl_training.testing.subject import ENVIRONMENTS, NUM_ENVS, SEED, ConformanceError, Subject
from rl_training.types import (
    ACTION_MASK,
    ActResult,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiDiscreteSpec,
    Obs,
    SpaceSpec,
    StateDict,
)

if TYPE_CHECKING:
    from rl_training.hparams.base import AlgorithmSpec
    from rl_training.testing.subject import StepTrainer

OTHER_SEED = 4
UPDATES = 6
"""Updates of a whole run; it is cut in the middle to see whether it can go on."""
DRAWS = 10
"""Number of times an action is drawn to see whether it stays within its bounds."""


@dataclass(frozen=True)
class ConformanceReport:
    """What was checked, where no problem was found."""

    algorithm: str
    trained_on: tuple[str, ...]
    """Environments that the algorithm accepted, and on which everything holds."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Environments that it refused, with the sentence a user reads."""

    def __str__(self) -> str:
        lines = [f"{self.algorithm} conforms on {', '.join(self.trained_on)}"]
        return "\n".join([*lines, *(f"  refuses {name}: {why}" for name, why in self.refused.items())])


def check_algorithm(
    algorithm: AlgorithmSpec | type | str,
    *,
    environments: Iterable[str] = tuple(ENVIRONMENTS),
    hparams: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> ConformanceReport:
    """Train an algorithm for a few hundred steps on each environment and see whether it keeps the rules.

    `algorithm` is a registered name, "package.module:Name", an AlgorithmSpec or a class such as one derived from
    BaseAlgorithm. It must accept or refuse each environment (`supports`), give actions that fit, learn with finite
    metrics, repeat itself under the same seed, keep its hands off global random state, not notice an evaluation, and
    go on from its own `state_dict()` as if nothing had happened, all of it bit for bit.

    `hparams` and `config` (sections as in a config file) are for what it needs beyond its defaults.
    """
    from rl_training.assembly.devices import pinned_threads

    trained_on, refused = [], {}
    with _named(algorithm) as name, pinned_threads(1), TemporaryDirectory() as folder:
        for env_id in environments:
            subject = Subject.find(name, env_id, hparams or {}, config or {}, Path(folder))
            refusal = subject.refusal()
            if refusal is None:
                _check_on(subject)
                trained_on.append(env_id)
            else:
                refused[env_id] = refusal
    if not trained_on:
        reasons = "; ".join(f"{env_id}: {why}" for env_id, why in refused.items())
        raise ConformanceError(
            f"algorithm '{name}' refuses every environment it was tried on, so nothing is checked ({reasons}); "
            "pass environments=[...] with one that it is made for"
        )
    return ConformanceReport(name, tuple(trained_on), refused)


@contextmanager
def _named(algorithm: AlgorithmSpec | type | str) -> Iterator[str]:
    """The name under which configs find the algorithm; it is registered temporarily if it has none."""
    if isinstance(algorithm, str):
        yield algorithm
        return
    from rl_training.hparams.base import AlgorithmSpec

    if isinstance(algorithm, AlgorithmSpec):
        name = algorithm.name
    elif isinstance(algorithm, type):
        name = algorithm.__name__
    else:
        raise ConformanceError(f"{algorithm!r} is not an algorithm: give a name, an AlgorithmSpec or a class")
    with algorithms.override(name, algorithm):
        yield name


def _check_on(subject: Subject) -> None:
    """Four runs: one straight through, one with an evaluation in the middle, one continued, one of another seed."""
    half = UPDATES // 2
    with subject.trainer() as (trainer, watched):
        subject.learn(trainer, 1)
        first = subject.snapshot(trainer.state_dict())
        subject.learn(trainer, half - 1)
        middle = subject.snapshot(trainer.state_dict())
        subject.learn(trainer, UPDATES - half)
        end = subject.snapshot(trainer.state_dict())
        _check_acting(subject, trainer)
    learns = subject.spec.kind != "static"
    if learns and watched.rewarded and difference(first["policy"], end["policy"]) is None:
        subject.fail(
            f"{UPDATES - 1} updates changed nothing in policy.state_dict(). Does the optimiser hold the parameters "
            "that act() uses, is backward() called, and does the policy's state contain them?"
        )
    with subject.trainer() as (trainer, _):
        subject.learn(trainer, half)
        if place := difference(middle, subject.snapshot(trainer.state_dict())):
            subject.fail(
                f"two runs with the same seed differ after {half} updates, at {place}. Draw initial weights from "
                'ctx.streams("init"), the noise of actions from the generator act() is given, everything else from a '
                'stream such as ctx.streams("minibatch"); np.random and torch\'s global generator are in no checkpoint'
            )
        _evaluate(subject, trainer)
        subject.learn(trainer, UPDATES - half)
        if place := difference(end, subject.snapshot(trainer.state_dict())):
            subject.fail(
                f"an evaluation changed the training that followed it, at {place}. act() must keep nothing between "
                "calls: what it remembers belongs into the carry, its noise comes from the generator it is given"
            )
    _check_resume(subject, middle, end)
    if learns:
        with subject.trainer(OTHER_SEED) as (trainer, _):
            subject.learn(trainer, 1)
            if difference(first["policy"], subject.snapshot(trainer.state_dict())["policy"]) is None:
                subject.fail('another seed gives the same policy; draw initial weights from ctx.streams("init")')


def _check_resume(subject: Subject, middle: StateDict, end: StateDict) -> None:
    with subject.trainer() as (trainer, _):
        with subject.attempt("load_state_dict() of what state_dict() gave"):
            trainer.load_state_dict(copy.deepcopy(middle))
        if place := difference(middle, subject.snapshot(trainer.state_dict())):
            subject.fail(
                f"state_dict() after load_state_dict() is not what was loaded, at {place}; load every key, "
                "with its dtype"
            )
        subject.learn(trainer, UPDATES - UPDATES // 2)
        if place := difference(end, subject.snapshot(trainer.state_dict())):
            subject.fail(
                f"a run that was saved and continued ends differently, at {place}. Something that update() or act() "
                "reads is not in state_dict(): a network, an optimiser, a generator, a counter, a running statistic"
            )


def _evaluate(subject: Subject, trainer: StepTrainer) -> None:
    from rl_training.assembly.environments import eval_env_maker
    from rl_training.training.evaluation import evaluate_policy

    maker = eval_env_maker(subject.config(), None)
    for deterministic in (True, False):
        with subject.attempt("evaluating it"):
            evaluate_policy(trainer.algorithm.policy, maker, episodes=1, seed=SEED, deterministic=deterministic)


# -- acting -----------------------------------------------------------------------------------------------------------


def _check_acting(subject: Subject, trainer: StepTrainer) -> None:
    policy, space = trainer.algorithm.policy, trainer.spaces[1]
    before, all_rows = subject.snapshot(policy.state_dict()), subject.observations(trainer)
    greedy = {}
    for count in (1, NUM_ENVS):
        obs = _first_rows(all_rows, count)
        for draw in range(DRAWS):
            result = _act(subject, policy, obs, count, draw, deterministic=False)
            _check_actions(subject, space, obs, result, count)
        for deterministic in (False, True):
            once, twice = (_act(subject, policy, obs, count, 0, deterministic=deterministic) for _ in range(2))
            _check_actions(subject, space, obs, once, count)
            if difference(once.actions, twice.actions) is not None:
                subject.fail(
                    f"act(deterministic={deterministic}) gives other actions for the same observations and an equal "
                    "generator; draw from that generator alone, and keep nothing between calls"
                )
        greedy[count] = once.env_actions
    alone, together = np.asarray(greedy[1][0], np.float64), np.asarray(greedy[NUM_ENVS][0], np.float64)
    if subject.spec.kind != "static" and not np.allclose(alone, together, atol=1e-4):
        subject.fail(
            f"the greedy action for an observation alone is {alone}, and {together} beside others; each row must be "
            "decided by itself (batch normalisation must act with its running statistics)"
        )
    if place := difference(before, subject.snapshot(policy.state_dict())):
        subject.fail(f"acting changed the policy's state at {place}; move statistics in observe() instead")


def _act(subject: Subject, policy: Any, obs: Obs, count: int, seed: int, *, deterministic: bool) -> ActResult:
    given = copy.deepcopy(obs)
    rng = np.random.default_rng(seed)
    with subject.attempt("act()"), subject.untouched("act()"):
        carry, is_first = policy.initial_carry(count), np.ones(count, bool)
        result = policy.act(given, carry, is_first, rng, deterministic=deterministic)
    if not isinstance(result, ActResult):
        subject.fail(f"policy.act() returned a {type(result).__name__}; it must return an ActResult")
    if difference(obs, given) is not None:
        subject.fail("act() writes into the observations it is given; copy them first")
    return result


def _check_actions(subject: Subject, space: SpaceSpec, obs: Obs, result: ActResult, count: int) -> None:
    assert not isinstance(space, DictSpec), "refused before anything is built"
    shape = (count, *space.shape)
    for name, actions in (("actions", result.actions), ("env_actions", result.env_actions)):
        if not isinstance(actions, np.ndarray) or actions.shape != shape:
            got = actions.shape if isinstance(actions, np.ndarray) else type(actions).__name__
            subject.fail(f"the {name} of act() are {got} for {count} observations; they must be an array {shape}")
        if (actions.dtype.kind == "f") != (space.dtype.kind == "f"):
            subject.fail(f"the {name} of act() are {actions.dtype}; the action space has {space.dtype}")
    low, high = _bounds(space)
    outside = (result.env_actions < low) | (result.env_actions > high) | ~np.isfinite(result.env_actions)
    if outside.any():
        subject.fail(
            f"act() sends {result.env_actions[outside][0]} to the environment, whose actions lie between {low} and "
            f"{high}; env_actions must be cut to the bounds (rl_training.algorithms.on_policy.to_env does that)"
        )
    mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
    if mask is not None and isinstance(space, DiscreteSpec):
        taken = result.env_actions.astype(np.int64)
        if not mask[np.arange(count), taken].all():
            subject.fail(
                f'act() took an action that obs["{ACTION_MASK}"] forbids; give the head the mask, or refuse it'
            )


def _bounds(space: SpaceSpec) -> tuple[Any, Any]:
    if isinstance(space, BoxSpec):
        return space.low, space.high
    if isinstance(space, MultiDiscreteSpec):
        return 0, np.array(space.nvec) - 1
    return 0, space.n - 1 if isinstance(space, DiscreteSpec) else 1


def _first_rows(obs: Obs, count: int) -> Obs:
    return {name: rows[:count] for name, rows in obs.items()} if isinstance(obs, dict) else obs[:count]
