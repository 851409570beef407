"""Values that change over a run, as functions of the fraction of its budget that is spent; they have no state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict

from rl_training.types import ConfigError


@dataclass(frozen=True)
class Schedule:
    """From `start` to `end` over the whole run; in a config `{type: linear, start: 3e-4, end: 0}`."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    type: Literal["linear", "cosine", "exponential"]
    """Shape of the curve: a straight line, half a cosine, or a constant factor per step (both ends positive)."""
    start: float
    """Value at the first update."""
    end: float
    """Value when the budget is spent."""

    def __post_init__(self) -> None:
        if self.type == "exponential" and not (self.start > 0 and self.end > 0):
            raise ConfigError("an exponential schedule needs start > 0 and end > 0")


def value_at(schedule: float | Schedule, fraction: float) -> float:
    """The value when `fraction` (0 to 1, clamped) of the budget is spent.

    >>> value_at(Schedule("linear", 1.0, 0.0), 0.25)
    0.75
    """
    if not isinstance(schedule, Schedule):
        return float(schedule)
    fraction = min(max(fraction, 0.0), 1.0)
    start, end = schedule.start, schedule.end
    if schedule.type == "linear":
        return start + (end - start) * fraction
    if schedule.type == "cosine":
        return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * fraction))
    return float(start * (end / start) ** fraction)
