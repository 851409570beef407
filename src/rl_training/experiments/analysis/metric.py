"""What runs are compared by: a logged metric, a column of the index, or a human-normalised score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_training.experiments.analysis.atari_scores import human_normalized
from rl_training.experiments.analysis.curves import Curve, read_curve
from rl_training.experiments.analysis.entries import Run
from rl_training.experiments.keeping.filters import find_key
from rl_training.runs.index import REWARDS
from rl_training.types import Array, ConfigError

HUMAN_NORMALIZED = "hns"
"""As `--metrics`: the reward of an Atari game, from 0 for a random agent to 1 for a human."""


@dataclass(frozen=True)
class Metric:
    """What runs are compared by."""

    name: str
    """As it was asked for, without the minus sign."""
    logged: str | None
    """Its name in the log; None for a column of the index, which has no curve."""
    low_is_good: bool

    @property
    def is_human_normalized(self) -> bool:
        """Whether its values mean the same in every environment, and are summed up over several without scaling."""
        return self.name == HUMAN_NORMALIZED

    @property
    def label(self) -> str:
        """What an axis says."""
        return self.name if self.is_human_normalized else self.logged or self.name

    def score(self, run: Run) -> float | None:
        """The final value of a run; None where it has none, or none that is a number."""
        value = run.row["results"].get(self.logged) if self.logged else find_key(self.name).of(run.row)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return human_normalized(run.task, float(value)) if self.is_human_normalized else float(value)

    def curve(self, run: Run) -> Curve:
        """The values in the log of a run that has a score; empty where the log has none."""
        assert self.logged is not None
        curve = read_curve(run.path, self.logged)
        if not self.is_human_normalized:
            return curve
        values = [human_normalized(run.task, value) for value in curve.values.tolist()]
        is_game = [value is not None for value in values]  # of all points or of none
        return Curve(curve.steps[is_game], np.array(values, np.float64)[is_game])

    def oriented(self, scores: Array) -> Array:
        """Scores of which more is better."""
        return -scores if self.low_is_good else scores


def parse_metric(typed: str, runs: Sequence[Run]) -> Metric:
    """`reward` is the evaluation where every run has one, else the training episodes; ConfigError for no number."""
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
