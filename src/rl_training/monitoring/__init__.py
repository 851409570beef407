"""Watching a run: alerts, debug mode, gradient checks."""

from typing import TYPE_CHECKING

from rl_training.system.imports import lazily

if TYPE_CHECKING:
    from rl_training.monitoring.alerts import Alert, MonitorCallback, Rule, TrainingMonitor

__all__ = ["Alert", "MonitorCallback", "Rule", "TrainingMonitor"]

__getattr__ = lazily(
    __name__,
    {
        "Alert": "alerts",
        "MonitorCallback": "alerts",
        "Rule": "alerts",
        "TrainingMonitor": "alerts",
    },
)
