"""The scheduler that a sweep or search asks for, ready to feed a `GroupRunner`."""

from __future__ import annotations

from rl_training.config.searches.schedulers import SchedulerConfig
from rl_training.experiments.launching.scheduling.asha import Asha
from rl_training.experiments.launching.scheduling.pbt import Population
from rl_training.experiments.launching.scheduling.trials import TrialSource
from rl_training.experiments.launching.sweeps import Sweep


def make_scheduler(sweep: Sweep, config: SchedulerConfig, source: TrialSource | None = None) -> Asha | Population:
    """The scheduler of a sweep; `source` adds the trials of a search to it."""
    return Population(sweep, config, source) if config.type == "pbt" else Asha(sweep, config, source)
