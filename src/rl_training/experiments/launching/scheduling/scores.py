"""What schedulers share: the scheduler that a sweep records, and the score of a run that has paused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rl_training.config.searches.schedulers import SchedulerConfig
from rl_training.experiments.keeping.filters import find_key
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.runs.row import REWARDS
from rl_training.types import ConfigError, RunError


def scheduler_config(recorded: Mapping[str, Any] | None) -> SchedulerConfig:
    """The scheduler that a sweep's record names."""
    try:
        return TypeAdapter(SchedulerConfig).validate_json(json.dumps(recorded), strict=True)
    except (ValidationError, ConfigError) as error:
        raise RunError(f"the recorded scheduler makes no sense ({error}); restore sweep.json from a backup") from None


def score_of(sweep: Sweep, member: Member, config: SchedulerConfig) -> float | None:
    """The newest value of the metric of a run, higher is better; None where it is missing or not finite."""
    metrics = sweep.final_metrics(member)
    column = find_key(config.metric).column
    names: Sequence[str] = {"reward": REWARDS, "loss": ("train/loss",)}.get(column, (config.metric,))
    value = next((metrics[name] for name in names if metrics.get(name) is not None), None)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if config.direction == "maximize" else -float(value)
