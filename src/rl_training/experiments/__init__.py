"""Many runs together: launching groups and sweeps, statistics and plots, finding and archiving runs.

The classes for use from Python are re-exported here, each imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.experiments.analysis.plotter import Plotter
    from rl_training.experiments.keeping.cleanup import ExperimentCleaner
    from rl_training.experiments.keeping.tracker import ExperimentTracker
    from rl_training.experiments.keeping.verify import ReproducibilityChecker
    from rl_training.experiments.launching.auto_tuner import AutoTuner
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.runner import ExperimentRunner
    from rl_training.experiments.launching.sweeps import Sweep

_HOME = {
    "AutoTuner": "launching.auto_tuner",
    "ExperimentCleaner": "keeping.cleanup",
    "ExperimentRunner": "launching.runner",
    "ExperimentTracker": "keeping.tracker",
    "Plotter": "analysis.plotter",
    "ReproducibilityChecker": "keeping.verify",
    "SeedGroup": "launching.groups",
    "Sweep": "launching.sweeps",
}

__all__ = [
    "AutoTuner",
    "ExperimentCleaner",
    "ExperimentRunner",
    "ExperimentTracker",
    "Plotter",
    "ReproducibilityChecker",
    "SeedGroup",
    "Sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rl_training.experiments' has no attribute '{name}'")
    return getattr(importlib.import_module(f"rl_training.experiments.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
