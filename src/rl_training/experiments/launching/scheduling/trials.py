"""Where a scheduler takes its trials from and whom it tells about them: the list of a sweep, or a search.

A sweep has all its trials from the start. A search suggests them one by one (`suggested.py`) and learns from their
scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rl_training.experiments.launching.member import Member

DIGITS = 6
"""Significant digits of a changed number, few enough to be typed again."""


class TrialSource(Protocol):
    """What a scheduler asks for and tells. Scores are such that higher is better."""

    def has_further(self) -> bool:
        """Whether there are trials besides those that the sweep has."""

    def further(self) -> list[Member]:
        """Add a further trial to the sweep; its members, or none if there is no further trial."""

    def combined(self, scores: Sequence[float]) -> float:
        """The score of a trial from those of its seeds."""

    def changed(self, values: Mapping[str, Any], factors: Sequence[float], rng: np.random.Generator) -> dict[str, Any]:
        """The values of a trial that goes on from another one, given those of its model."""

    def told(self, trial: int, stage: int, score: float | None, *, is_last: bool) -> None:
        """A trial has come to the end of a rung or interval; None means that it failed. May be told again."""

    def branched(self, trial: int, values: Mapping[str, Any]) -> None:
        """A trial was added that goes on from another one."""

    def replaced(self, trial: int) -> None:
        """A trial does not go on: another one has its place."""


class ListedTrials:
    """The trials that a sweep has listed: there are no others, and nobody learns from their scores."""

    def has_further(self) -> bool:
        return False

    def further(self) -> list[Member]:
        return []

    def combined(self, scores: Sequence[float]) -> float:
        return sum(scores) / len(scores)

    def changed(self, values: Mapping[str, Any], factors: Sequence[float], rng: np.random.Generator) -> dict[str, Any]:
        return changed_values(values, factors, rng)

    def told(self, trial: int, stage: int, score: float | None, *, is_last: bool) -> None:
        """Nobody listens."""

    def branched(self, trial: int, values: Mapping[str, Any]) -> None:
        """Nobody listens."""

    def replaced(self, trial: int) -> None:
        """Nobody listens."""


def changed_values(values: Mapping[str, Any], factors: Sequence[float], rng: np.random.Generator) -> dict[str, Any]:
    """The values of a model with each number multiplied by one of `factors`; whole numbers stay whole, the rest stays.

    >>> changed_values({"hparams.gamma": "x", "hparams.ent_coef": 0.5}, (2.0, 2.0), np.random.default_rng(0))
    {'hparams.gamma': 'x', 'hparams.ent_coef': 1.0}
    """
    changed = {}
    for key, value in values.items():
        factor = factors[int(rng.integers(len(factors)))]
        changed[key] = multiplied(value, factor)
    return changed


def multiplied(value: Any, factor: float) -> Any:
    """A number times a factor, rounded; whole numbers stay whole and at least 1, anything else stays."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, int):
        return max(round(value * factor), 1)
    return float(f"{value * factor:.{DIGITS}g}")
