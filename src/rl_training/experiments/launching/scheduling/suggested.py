"""`SuggestedTrials`: the trials of a search, for a scheduler. A sampler suggests them and learns from their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl_training.config.searches.sweeps import RangeConfig
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.scheduling.trials import multiplied
from rl_training.experiments.launching.tuning import Tuning


class SuggestedTrials:
    """Passes what a scheduler says about trials on to the study of a search."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning
        self.sign = 1.0 if tuning.config.direction == "maximize" else -1.0
        """Turns a value of the metric into a score, of which higher is better, and back."""
        self.num_branches = len(tuning.branches())

    def has_further(self) -> bool:
        return self.tuning.num_asked() - self.num_branches < self.tuning.config.num_trials

    def further(self) -> list[Member]:
        while self.has_further():
            if members := self.tuning.begin():
                return members  # else its values did not go together: it has failed, and the next one is asked for
        return []

    def combined(self, scores: Sequence[float]) -> float:
        return self.sign * self.tuning.aggregate([self.sign * score for score in scores])

    def changed(self, values: Mapping[str, Any], factors: Sequence[float], rng: np.random.Generator) -> dict[str, Any]:
        """Each value changed by one of the factors, inside of what is searched."""
        config, found = self.tuning.config, {}
        for key, value in values.items():
            factor = factors[int(rng.integers(len(factors)))]
            if key in config.ranges:
                found[key] = within(config.ranges[key], value, factor)
            else:
                found[key] = neighbour(config.sweep.get(key, (value,)), value, factor)
        return found

    def told(self, trial: int, stage: int, score: float | None, *, is_last: bool) -> None:
        self.tuning.tell(trial, stage, None if score is None else self.sign * score, is_last=is_last)

    def branched(self, trial: int, values: Mapping[str, Any]) -> None:
        self.tuning.add_branch(trial, values)
        self.num_branches += 1

    def replaced(self, trial: int) -> None:
        self.tuning.prune(trial)


def within(bounds: RangeConfig, value: Any, factor: float) -> Any:
    """A number of a range times a factor, at most at one of its ends.

    >>> within(RangeConfig(0.9, 0.999), 0.95, 1.25)
    0.999
    """
    low, high = (int(bounds.low), int(bounds.high)) if bounds.integer else (bounds.low, bounds.high)
    return min(max(multiplied(value, factor), low), high)


def neighbour(values: Sequence[Any], value: Any, factor: float) -> Any:
    """The value beside one of a list: the next for a factor above 1, the previous below; the ends stay.

    >>> neighbour([0.1, 0.2, 0.3], 0.2, 1.25), neighbour([0.1, 0.2, 0.3], 0.1, 0.8)
    (0.3, 0.1)
    """
    if value not in values:
        return value
    place = list(values).index(value) + (0 if factor == 1 else 1 if factor > 1 else -1)
    return values[min(max(place, 0), len(values) - 1)]
