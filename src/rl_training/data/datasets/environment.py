"""The environment of an offline run whose config names none: that of its dataset."""

from __future__ import annotations

from typing import Any

from rl_training.config.resolution import ResolvedConfig
from rl_training.config.schema import DATASET_ENV
from rl_training.data.datasets.info import DatasetError
from rl_training.data.datasets.opening import open_dataset
from rl_training.runs.foreign_code import foreign_code
from rl_training.types import ConfigError

BUILDS = ("kwargs", "wrappers", "max_episode_steps", "frame_stack")
"""Fields of `env` that say how one environment is built."""


def with_environment(resolved: ResolvedConfig) -> ResolvedConfig:
    """The config with the environment of its dataset in place of none, built as it was for the recording. Code and
    files are never taken from a dataset: DatasetError where it names some."""
    cfg = resolved.config
    if cfg.env_id != DATASET_ENV:
        return resolved
    if cfg.dataset.path is None:
        raise ConfigError(f"'{cfg.algo}' is offline and learns from a dataset: give --dataset PATH (see 'rl record')")
    info = open_dataset(cfg.dataset.path, output_dir=cfg.output_dir, verify=False).info
    values: dict[str, Any] = {f"env.{name}": info.env[name] for name in BUILDS if info.env.get(name)}
    settled = resolved.with_values({"env_id": info.env_id, **values})
    own = foreign_code(cfg)
    if named := [text for text in foreign_code(settled.config) if text not in own]:
        raise DatasetError(
            f"dataset '{cfg.dataset.path}' names code or files for its environment ({', '.join(named)}), and a dataset "
            "is no place that they are taken from: give --env-id, and where needed --env.wrappers and --env.kwargs, "
            "yourself"
        )
    return settled
