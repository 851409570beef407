"""Logs of a run: rows to files and sinks, the progress bar, videos."""

from typing import TYPE_CHECKING

from rl_training.system.imports import lazily

if TYPE_CHECKING:
    from rl_training.logging.logger import ConsoleSink, JsonlSink, Logger, Sink
    from rl_training.logging.metrics_tracker import MetricsTracker

__all__ = ["ConsoleSink", "JsonlSink", "Logger", "MetricsTracker", "Sink"]

__getattr__ = lazily(
    __name__,
    {
        "ConsoleSink": "logger",
        "JsonlSink": "logger",
        "Logger": "logger",
        "MetricsTracker": "metrics_tracker",
        "Sink": "logger",
    },
)
