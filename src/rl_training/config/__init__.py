"""Configuration: the typed schema, and how files, flags and presets fill it."""

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

__all__ = [
    "AlertRuleConfig",
    "BackboneConfig",
    "BufferConfig",
    "CheckpointConfig",
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
