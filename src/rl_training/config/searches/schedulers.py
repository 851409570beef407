"""`scheduler:` of sweep files: how the env steps of a sweep are shared out among its trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.config.schema import SECTION
from rl_training.hparams.base import check_range


@dataclass(frozen=True)
class SchedulerConfig:
    """Successive halving of the trials of a sweep; without one, every trial runs to the end."""

    __pydantic_config__ = SECTION

    type: Literal["asha"] = "asha"
    """Asynchronous successive halving (Li et al. 2020, arXiv:1810.05934): of the trials that reach a rung, the best go
    on to the next one as soon as they are known to be among the best."""
    reduction: int = 3
    """Of so many trials at a rung one goes on, and it may use so many times the env steps."""
    num_rungs: int = 3
    """Rungs, the full budget of a trial included; the first is at total_timesteps / reduction ** (num_rungs - 1)."""
    metric: str = "reward"
    """What trials are compared by: reward, loss, or any metric of a run; the mean over the seeds of a trial."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether higher or lower is better."""

    def __post_init__(self) -> None:
        check_range(self, "reduction", low=2, high=100)
        check_range(self, "num_rungs", low=2, high=10)
