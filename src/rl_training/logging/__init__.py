"""Logs of a run: rows to files and sinks, the progress bar, videos."""

from rl_training.logging.logger import ConsoleSink, JsonlSink, Logger, Sink
from rl_training.logging.metrics_tracker import MetricsTracker

__all__ = ["ConsoleSink", "JsonlSink", "Logger", "MetricsTracker", "Sink"]
