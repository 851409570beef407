"""Configuration: the typed schema, and how files, flags and presets fill it.

Names are imported when first used: comparing rows of runs (`expressions`) needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from rl_training.config import monitor, schema

    return getattr(monitor if name in ("AlertRuleConfig", "DebugConfig", "MonitorConfig") else schema, name)
