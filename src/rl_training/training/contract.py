"""What trainers, NaN guard and debug mode ask of an algorithm beyond `types.Algorithm`, with defaults for all of it.

`types.Algorithm` is what a class must have. The algorithms of the package also have what the protocols below list; a
class of yours may leave out any of it, and its hyperparameters may be a plain mapping. The functions below complete it.
This is the only module that asks an algorithm or its hyperparameters whether they have something.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from rl_training.hparams.base import AlgorithmSpec, OnPolicyHparams, supports_anything
from rl_training.hparams.off_policy import OffPolicyHparams, ReplayOptions, ReplaySchedule
from rl_training.registry import check_methods
from rl_training.types import Algorithm, Array, Batch, Policy

PACKAGE = __name__.partition(".")[0]


@runtime_checkable
class OffPolicyAlgorithm(Algorithm, Protocol):
    """An algorithm that learns from replay and says when, how much, and who acts before that."""

    @property
    def schedule(self) -> ReplaySchedule:
        """When `update` is called, and with how many transitions."""

    @property
    def warmup(self) -> Policy:
        """The policy that acts until learning starts."""

    @property
    def updates_per_learn(self) -> int:
        """Updates that one call of `update` counts as."""


@runtime_checkable
class ExploresTogether(Protocol):
    """An algorithm whose environments explore differently when they collect without waiting for the learner."""

    def explorer(self, index: int) -> Policy:
        """The policy of environment `index` of the run."""

    def first_priorities(self, steps: Batch, reward_scale: float, /) -> Array | None:
        """Priorities (T, n) that steps (T, n, ...) get before the learner has seen them; None for the usual ones."""


@runtime_checkable
class Inspectable(Protocol):
    """What the NaN guard and debug mode look into."""

    def watched(self) -> Iterable[Any]:
        """Tensors and arrays that must be finite after each update."""

    def named_modules(self) -> Iterable[tuple[str, Any]]:
        """Networks that are trained."""

    def named_optimizers(self) -> Iterable[tuple[str, Any]]:
        """Optimisers; one without `param_groups` moves the network of the same name."""

    def reference_gradients(self) -> AbstractContextManager[None]:
        """Inside, gradients come from autograd, never from a hand-written kernel."""


@dataclass(frozen=True)
class ReplayTerms:
    """How an algorithm learns from replay, complete."""

    schedule: ReplaySchedule
    warmup: Policy
    updates_per_learn: int
    options: ReplayOptions


# -- completing what an algorithm of a user says ----------------------------------------------------------------------


def spec_of_class(name: str, cls: type) -> AlgorithmSpec:
    """The spec of an algorithm that is given as a class: its `kind`, `Hparams` and `supports`, where it has them."""
    return AlgorithmSpec(
        name,
        getattr(cls, "kind", "on_policy"),
        getattr(cls, "Hparams", dict),
        build=cls,
        supports=getattr(cls, "supports", supports_anything),
    )


def checked(algorithm: Any, what: str) -> Algorithm:
    """The same algorithm; ConfigError if it lacks a method that `types.Algorithm` or `types.Policy` lists."""
    base = "derive it from rl_training.BaseAlgorithm, or see the protocols in rl_training.types"
    check_methods(algorithm, ("update", "observe", "state_dict", "load_state_dict"), what, base)
    policy = getattr(algorithm, "policy", None)
    check_methods(policy, ("act", "initial_carry", "state_dict", "load_state_dict"), f"the policy of {what}", base)
    return cast(Algorithm, algorithm)


def rollout_length(hparams: Any) -> int:
    """Steps per environment and rollout."""
    return int(_given(hparams, "num_steps", OnPolicyHparams.num_steps))


def burn_in(hparams: Any) -> int:
    """Steps at the beginning of replayed sequences that only warm up a memory."""
    return int(_given(hparams, "burn_in", OffPolicyHparams.burn_in))


def behaviour_policy(algorithm: Algorithm) -> Policy:
    """The policy that collects rollouts: the one that learns, unless the algorithm has another `behaviour`."""
    return cast(Policy, getattr(algorithm, "behaviour", algorithm.policy))


def reward_scale(algorithm: Algorithm) -> float:
    """Factor by which the algorithm multiplies rewards now; 1 where it does not normalise them."""
    normalizer = getattr(algorithm, "reward_normalizer", None)
    return 1.0 if normalizer is None else float(normalizer.scale(np.ones(1, np.float32))[0])


def replay_terms(algorithm: Algorithm, hparams: Any) -> ReplayTerms:
    """How `algorithm` learns from replay: as it says itself, else as its hyperparameters say, else as usual."""
    return ReplayTerms(
        schedule=getattr(algorithm, "schedule", None) or _schedule(hparams),
        warmup=getattr(algorithm, "warmup", algorithm.policy),
        updates_per_learn=getattr(algorithm, "updates_per_learn", 1),
        options=replace(_options(hparams), sequences=getattr(algorithm, "sequences", None)),
    )


def inspected(algorithm: Any) -> Inspectable:
    """The algorithm itself where it can be inspected, else what there is to be found in it."""
    return algorithm if isinstance(algorithm, Inspectable) else _Found(algorithm)


class _Found:
    """An algorithm that implements only some of `Inspectable`: its `networks` and `optimizers`, or `network` and
    `optimizer`, are taken for what the names say."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm

    def watched(self) -> Iterable[Any]:
        return cast(Iterable[Any], self.algorithm.watched()) if hasattr(self.algorithm, "watched") else ()

    def named_modules(self) -> Iterable[tuple[str, Any]]:
        return self._named("networks", "network")

    def named_optimizers(self) -> Iterable[tuple[str, Any]]:
        return self._named("optimizers", "optimizer")

    def reference_gradients(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _named(self, several: str, one: str) -> Iterable[tuple[str, Any]]:
        parts = getattr(self.algorithm, several, None)
        if isinstance(parts, Mapping):
            return parts.items()
        return [("network", getattr(self.algorithm, one))] if hasattr(self.algorithm, one) else []


def _given(hparams: Any, name: str, default: Any) -> Any:
    """A hyperparameter that may be missing, of a dataclass or a mapping."""
    return hparams.get(name, default) if isinstance(hparams, Mapping) else getattr(hparams, name, default)


def _schedule(hparams: Any) -> ReplaySchedule:
    usual = OffPolicyHparams().replay
    return ReplaySchedule(
        int(_given(hparams, "batch_size", usual.batch_size)),
        int(_given(hparams, "learning_starts", usual.learning_starts)),
        float(_given(hparams, "updates_per_step", usual.updates_per_step)),
    )


def _options(hparams: Any) -> ReplayOptions:
    """Hyperparameters of the package say it themselves; those of a user are read by name, also where they derive from
    the package's and declare more."""
    if isinstance(hparams, OffPolicyHparams) and type(hparams).__module__.partition(".")[0] == PACKAGE:
        return hparams.replay_options
    usual = ReplayOptions()
    return ReplayOptions(
        n_step=int(_given(hparams, "n_step", usual.n_step)),
        gamma=float(_given(hparams, "gamma", usual.gamma)),
        prioritized=bool(_given(hparams, "prioritized", usual.prioritized)),
        alpha=float(_given(hparams, "priority_alpha", usual.alpha)),
        beta=_given(hparams, "priority_beta", usual.beta),
    )
