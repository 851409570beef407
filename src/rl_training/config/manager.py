"""ConfigManager: load, save, validate and override configs through one class; a front over `config.loading`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.config.loading import config_to_mapping, dump_yaml, load_config, parse_config, validate_config
from rl_training.config.schema import TrainConfig
from rl_training.system.atomic_io import atomic_write


class ConfigManager:
    """Configs in and out. It keeps no state: every method takes what it works on and returns a new config."""

    @staticmethod
    def load(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> TrainConfig:
        """The config in a YAML file, a preset ("ppo/cartpole") or a mapping, with `overrides` (dotted keys) on top."""
        if isinstance(source, Mapping):
            return parse_config(source, overrides)
        return load_config(source, overrides)

    @staticmethod
    def save(cfg: TrainConfig, path: str | Path) -> Path:
        """Write `cfg` as YAML that loads back to an equal config. The file is replaced atomically."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, dump_yaml(cfg).encode())
        return target

    @staticmethod
    def validate(cfg: TrainConfig | Mapping[str, Any]) -> TrainConfig:
        """The config with canonical types; a ConfigError lists every problem at once."""
        return validate_config(cfg) if isinstance(cfg, TrainConfig) else parse_config(cfg)

    @staticmethod
    def override(cfg: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
        """`cfg` with `changes` on top, validated: `{"hparams.learning_rate": 1e-3, "env.num_envs": 8}`."""
        return parse_config(config_to_mapping(cfg), changes, source=type(cfg).__name__)
