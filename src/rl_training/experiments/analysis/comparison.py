"""The records of a comparison: summaries with their intervals, probabilities of improvement, profiles, cost.

`compare` computes them; tables, figures, reports and exports read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rl_training.experiments.analysis.config_differences import Differences
from rl_training.experiments.analysis.curves import Curve
from rl_training.experiments.analysis.entries import Entry
from rl_training.experiments.analysis.metrics.metric import Metric
from rl_training.experiments.analysis.statistics import Estimate


@dataclass(frozen=True)
class Summary:
    """Aggregate scores of an entry in one environment, or over all."""

    entry: str
    task: str
    scores: tuple[float, ...]
    iqm: Estimate
    mean: Estimate
    median: Estimate
    reached: int | None = None
    """Number of runs that reached the threshold."""
    steps_to_threshold: float | None = None
    """Median env steps to the threshold; None where half of the runs or more did not reach it."""


@dataclass(frozen=True)
class Improvement:
    """Probability that a run of `entry` scores higher than one of `over`."""

    entry: str
    over: str
    probability: Estimate

    def turned(self) -> Improvement:
        """The probability for the reverse order: ties count half, so the two add up to 1."""
        found = self.probability
        low, high = (None if bound is None else 1.0 - bound for bound in (found.high, found.low))
        return Improvement(self.over, self.entry, replace(found, value=1.0 - found.value, low=low, high=high))


@dataclass(frozen=True)
class Profile:
    """Performance profile: the share of an entry's runs that score at least each level, with its interval."""

    entry: str
    share: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class MetricResult:
    """All results for one metric."""

    metric: Metric
    summaries: tuple[Summary, ...]
    """One per entry and environment."""
    overall: tuple[Summary, ...]
    """With several environments: over those that all entries share, scaled so that in each the worst run scores 0 and
    the best 1; human-normalised scores are not scaled."""
    thresholds: Mapping[str, float]
    improvements: tuple[Improvement, ...]
    levels: tuple[float, ...]
    profiles: tuple[Profile, ...]
    curves: Mapping[tuple[str, str], Sequence[Curve]] = field(repr=False)
    """Learning curves by entry and environment; where an environment has runs by env steps and runs by updates, each
    kind by itself, as "environment (updates)"."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """What the curves of each of these are drawn over: env steps, or updates of offline runs."""

    @property
    def is_scaled(self) -> bool:
        """Whether the scores over all environments are scaled between the worst run and the best."""
        return bool(self.overall) and not self.metric.is_human_normalized

    @property
    def headline(self) -> tuple[Summary, ...]:
        """One summary per entry: of the only environment, or over all of them. Empty where there is no common one."""
        return self.overall or (self.summaries if len({one.task for one in self.summaries}) == 1 else ())


@dataclass(frozen=True)
class Cost:
    """Cost of an entry: medians over its runs; None where no run recorded it."""

    entry: str
    runs: int
    seconds: float | None
    steps_per_second: float | None
    peak_memory_bytes: float | None


@dataclass(frozen=True)
class Comparison:
    """The results of comparing entries by one or more metrics."""

    entries: tuple[Entry, ...]
    metrics: tuple[MetricResult, ...]
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]
    config_differences: Differences = field(default_factory=dict)

    @property
    def tasks(self) -> list[str]:
        return sorted({run.task for entry in self.entries for run in entry.runs})
