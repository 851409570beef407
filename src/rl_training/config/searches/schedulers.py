"""`scheduler:` of sweep and tuning files: how env steps are shared out among the trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.config.schema import SECTION
from rl_training.hparams.base import check_range
from rl_training.types import ConfigError


@dataclass(frozen=True)
class SchedulerConfig:
    """How trials share their steps and, with pbt, their weights; without one, every trial runs to its end by itself."""

    __pydantic_config__ = SECTION

    type: Literal["asha", "pbt"] = "asha"
    """asha: asynchronous successive halving (Li et al. 2020, arXiv:1810.05934), of the trials at a rung the best go on.
    pbt: population-based training (Jaderberg et al. 2017, arXiv:1711.09846), at each interval the worst trials go on
    from the weights of the best, with changed values."""
    metric: str = "reward"
    """What trials are compared by: reward, loss, or any metric of a run; the mean over the seeds of a trial. In a
    search: the metric, the direction and the aggregate of the search."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether higher or lower is better."""
    reduction: int = 3
    """asha: of so many trials at a rung one goes on, and it may use so many times the env steps."""
    num_rungs: int = 3
    """asha: rungs, the full budget of a trial included; the first at total_timesteps / reduction ** (num_rungs - 1)."""
    num_intervals: int = 10
    """pbt: intervals of equal length into which the budget of a trial is divided."""
    replaced: float = 0.25
    """pbt: share of the population that is replaced at the end of an interval, by trials of as large a share of the
    best; at least one."""
    factors: tuple[float, float] = (0.8, 1.25)
    """pbt: a number of a replaced trial is that of its model times one of these; other values stay. In a search numbers
    stay in their range, and a value of a list moves to its neighbour."""

    def __post_init__(self) -> None:
        check_range(self, "reduction", low=2, high=100)
        check_range(self, "num_rungs", low=2, high=10)
        check_range(self, "num_intervals", low=2, high=1000)
        check_range(self, "replaced", low=0.01, high=0.5)
        if min(self.factors) <= 0:
            raise ConfigError(f"factors must be greater than 0, not {list(self.factors)}")
