"""Configuration: the typed schema, and how files, flags and presets fill it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_training.config.monitor import AlertRuleConfig, DebugConfig, MonitorConfig
from rl_training.config.schema import (
    BackboneConfig,
    BufferConfig,
    CheckpointConfig,
    EnvConfig,
    LoggingConfig,
    NetworkConfig,
    PartConfig,
    TrainConfig,
    TrainingConfig,
    WandbConfig,
    WrapperConfig,
)

if TYPE_CHECKING:
    from rl_training.config.manager import ConfigManager

__all__ = [
    "AlertRuleConfig",
    "BackboneConfig",
    "BufferConfig",
    "CheckpointConfig",
    "ConfigManager",
    "DebugConfig",
    "EnvConfig",
    "LoggingConfig",
    "MonitorConfig",
    "NetworkConfig",
    "PartConfig",
    "TrainConfig",
    "TrainingConfig",
    "WandbConfig",
    "WrapperConfig",
]


def __getattr__(name: str) -> Any:
    if name == "ConfigManager":  # lazy: worker processes need the schema and not the loader with its YAML library
        from rl_training.config.manager import ConfigManager

        return ConfigManager
    raise AttributeError(f"module 'rl_training.config' has no attribute '{name}'")
