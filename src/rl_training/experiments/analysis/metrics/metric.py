"""Metrics by which runs are compared: a logged metric, a column of the index, or a human-normalised score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_training.experiments.analysis.curves import Curve, read_curve
from rl_training.experiments.analysis.entries import Run
from rl_training.experiments.analysis.metrics.atari_scores import human_normalized
from rl_training.experiments.keeping.filters import find_key
from rl_training.runs.row import REWARDS
from rl_training.types import Array, ConfigError

HUMAN_NORMALIZED = "hns"
"""Value of `--metrics`: the return in an Atari game, scaled so that a random agent scores 0 and a human 1."""


@dataclass(frozen=True)
class Metric:
    """A metric by which runs are compared."""

    name: str
    """As the user named it, without the minus sign."""
    logged: str | None
    """Its name in the log; None for a column of the index, which has no curve."""
    low_is_good: bool

    @property
    def is_human_normalized(self) -> bool:
        """Whether its values are comparable across environments, and are aggregated without scaling."""
        return self.name == HUMAN_NORMALIZED

    @property
    def label(self) -> str:
        """The label of an axis."""
        return self.name if self.is_human_normalized else self.logged or self.name

    def score(self, run: Run) -> float | None:
        """The final value of a run; None where it is missing or not finite."""
        value = run.row["results"].get(self.logged) if self.logged else find_key(self.name).of(run.row)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return human_normalized(run.task, float(value)) if self.is_human_normalized else float(value)

    def curve(self, run: Run) -> Curve:
        """The logged values of a run; empty where the log has none."""
        assert self.logged is not None
        curve = read_curve(run.path, self.logged)
        if not self.is_human_normalized:
            return curve
        values = [human_normalized(run.task, value) for value in curve.values.tolist()]
        is_game = [value is not None for value in values]  # the same for all points of a run
        return Curve(curve.steps[is_game], np.array(values, np.float64)[is_game])

    def oriented(self, scores: Array) -> Array:
        """Scores with the sign changed, if needed, so that higher is better."""
        return -scores if self.low_is_good else scores


def parse_metric(typed: str, runs: Sequence[Run]) -> Metric:
    """A metric by name. `reward` is the evaluation return if every run has one, else the training return; ConfigError
    where no run has a number."""
    name = typed.removeprefix("-").strip()
    returns = next((n for n in REWARDS if all(n in r.row["results"] for r in runs)), REWARDS[0])
    if name == HUMAN_NORMALIZED:
        metric = Metric(name, returns, False)
        if all(metric.score(run) is None for run in runs):
            raise ConfigError(f"no run is of an Atari game with a published human score, which '{name}' needs")
        return metric
    key = find_key(name)
    low_is_good = typed.startswith("-") or name.endswith("loss")
    if key.column == "reward":
        return Metric("reward", returns, False)
    if key.column == "loss":
        return Metric("loss", "train/loss", True)
    metric = Metric(name, name if key.column == "results" else None, low_is_good)
    if all(metric.score(run) is None for run in runs):
        raise ConfigError(f"no run has a number for '{name[:80]}'; `rl show RUN` lists the metrics of a run")
    return metric
