"""Watching a run: alerts, debug mode, gradient checks."""

from rl_training.monitoring.alerts import Alert, MonitorCallback, Rule, TrainingMonitor

__all__ = ["Alert", "MonitorCallback", "Rule", "TrainingMonitor"]
