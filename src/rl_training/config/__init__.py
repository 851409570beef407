"""Configuration: the typed schema, and how files, flags and presets fill it.

Names are imported when first used: comparing rows of runs (`expressions`) needs none of them.
"""

from typing import TYPE_CHECKING

from rl_training.system.imports import lazily

if TYPE_CHECKING:
    from rl_training.config.manager import ConfigManager
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

__getattr__ = lazily(
    __name__,
    {
        "AlertRuleConfig": "monitor",
        "BackboneConfig": "schema",
        "BufferConfig": "schema",
        "CheckpointConfig": "schema",
        "ConfigManager": "manager",
        "DebugConfig": "monitor",
        "EnvConfig": "schema",
        "LoggingConfig": "schema",
        "MonitorConfig": "monitor",
        "NetworkConfig": "schema",
        "PartConfig": "schema",
        "TrainConfig": "schema",
        "TrainingConfig": "schema",
        "WandbConfig": "schema",
        "WrapperConfig": "schema",
    },
)
