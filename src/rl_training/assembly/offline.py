"""An offline run: its dataset, its algorithm with the dataset's statistics, its trainer."""

from __future__ import annotations

import numpy as np

from rl_training.assembly.algorithm import build_algorithm, resolve_algorithm
from rl_training.assembly.environments import EnvFn, eval_env_maker
from rl_training.config.schema import TrainConfig
from rl_training.data.datasets.dataset import CHUNK, Dataset
from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.data.datasets.opening import open_dataset
from rl_training.envs import space_spec
from rl_training.guards import Guard
from rl_training.hparams.offline import OfflineHparams
from rl_training.runs.budgets import Budget
from rl_training.runs.spaces import describe, fits
from rl_training.seeding import Streams
from rl_training.training.contract import replay_terms
from rl_training.training.loop import RunSettings
from rl_training.training.offline.trainer import OfflineTrainer
from rl_training.types import Algorithm, ConfigError, Progress


def build_offline(cfg: TrainConfig, env_fn: EnvFn | None = None) -> OfflineTrainer:
    """The trainer of an offline config. The environment is only evaluated in, and never where that is switched off."""
    spec, hparams = resolve_algorithm(cfg)
    if cfg.dataset.path is None:
        raise ConfigError(f"'{cfg.algo}' is offline and learns from a dataset: give --dataset PATH (see 'rl record')")
    if isinstance(hparams, OfflineHparams) and not hparams.uses_rewards and cfg.dataset.reward != "raw":
        raise ConfigError(f"'{cfg.algo}' looks at no rewards: leave dataset.reward at raw")
    data = open_dataset(cfg.dataset.path, output_dir=cfg.output_dir)
    if cfg.training.num_eval_episodes:
        check_environment(cfg, env_fn, data)
    guard = Guard(cfg.monitor.checks, Progress(axis="updates"))
    spaces = data.info.spaces
    algorithm = build_algorithm(cfg, spec, hparams, *spaces, guard)
    replay = DatasetReplay(data, Streams(cfg.seed)("buffer"), cfg.dataset)
    if cfg.env.normalize_obs:
        freeze_statistics(algorithm, replay.data)
    batch_size = replay_terms(algorithm, hparams).schedule.batch_size
    settings = RunSettings(guard, spaces, None, [Budget(0, cfg.training.budget)])
    return OfflineTrainer(algorithm, replay, batch_size, settings)


def check_environment(cfg: TrainConfig, env_fn: EnvFn | None, data: Dataset) -> None:
    """ConfigError where the environment of the evaluations has other spaces than the dataset."""
    env = eval_env_maker(cfg, env_fn)(0)
    found = space_spec(env.observation_space), space_spec(env.action_space)
    env.close()
    for what, mine, other in zip(("observation", "action"), data.info.spaces, found, strict=True):
        if not fits(mine, other, bounds=what == "action"):
            raise ConfigError(
                f"environment '{cfg.env_id}' has the {what} space {describe(other)}, the dataset "
                f"'{cfg.dataset.path}' of '{data.info.env_id}' has {describe(mine)}: give --env-id {data.info.env_id}"
            )


def freeze_statistics(algorithm: Algorithm, data: Dataset) -> None:
    """Mean and standard deviation of the dataset's observations, in the policy; they never move again."""
    for start in range(0, len(data), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(data)))
        algorithm.observe({"obs": data.obs_of(rows), "valid": np.ones(len(rows), np.bool_)})
