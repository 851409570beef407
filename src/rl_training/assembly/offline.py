"""An offline run: its dataset, its algorithm with the dataset's statistics, its trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from rl_training.assembly.algorithm import build_algorithm, resolve_algorithm
from rl_training.assembly.environments import EnvFn, eval_env_maker
from rl_training.config.schema import TrainConfig
from rl_training.data.datasets.dataset import CHUNK, Dataset
from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.data.datasets.dataset_windows import DatasetSequences, DatasetWindows
from rl_training.data.datasets.opening import open_dataset
from rl_training.envs import space_spec
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec
from rl_training.hparams.off_policy import SequenceOptions
from rl_training.hparams.offline import OfflineHparams
from rl_training.hparams.optimizer import optimizer_type
from rl_training.runs.budgets import Budget
from rl_training.runs.spaces import Spaces, describe, fits
from rl_training.seeding import Streams
from rl_training.training.contract import ReplayTerms, replay_terms
from rl_training.training.loop import RunSettings
from rl_training.training.offline.trainer import OfflineTrainer
from rl_training.types import Algorithm, Array, ConfigError, Progress

Wrap = Callable[[Algorithm], Algorithm]
"""Gives the algorithm that the trainer is to use, for instance the same one with its calls checked."""


@runtime_checkable
class AimsAtReturns(Protocol):
    """An algorithm whose policy is told which return to reach."""

    def aim_at(self, returns: Array) -> None:
        """Take the returns of the dataset's episodes."""


def build_offline(
    cfg: TrainConfig, env_fn: EnvFn | None = None, wrap: Wrap = lambda algorithm: algorithm
) -> OfflineTrainer:
    """The trainer of an offline config. The environment is only evaluated in, and never where that is switched off."""
    spec, hparams = resolve_algorithm(cfg)
    if isinstance(hparams, OfflineHparams) and not hparams.uses_rewards and cfg.dataset.reward != "raw":
        raise ConfigError(f"'{cfg.algo}' looks at no rewards: leave dataset.reward at raw")
    data = opened_for(cfg)
    if cfg.training.num_eval_episodes:
        check_environment(cfg, env_fn, data)
    guard = Guard(cfg.monitor.checks, Progress(axis="updates"))
    spaces = data.info.spaces
    algorithm = build_algorithm(cfg, spec, hparams, *spaces, guard)
    terms = replay_terms(algorithm, hparams)
    replay = build_dataset_replay(cfg, hparams, data, terms.options.sequences)
    prepare_for_dataset(algorithm, cfg, replay.data)
    settings = RunSettings(guard, spaces, None, [Budget(0, cfg.training.budget)])
    if cfg.backend == "jax" and cfg.lane != "host":
        return build_compiled_offline(cfg, spec, algorithm, replay, terms, settings)
    return OfflineTrainer(wrap(algorithm), replay, terms, settings)


def opened_for(cfg: TrainConfig) -> Dataset:
    """The dataset of a run."""
    if cfg.dataset.path is None:
        raise ConfigError(f"'{cfg.algo}' is offline and learns from a dataset: give --dataset PATH (see 'rl record')")
    return open_dataset(cfg.dataset.path, output_dir=cfg.output_dir)


def build_compiled_offline(
    cfg: TrainConfig,
    spec: AlgorithmSpec,
    algorithm: Algorithm,
    replay: DatasetReplay,
    terms: ReplayTerms,
    settings: RunSettings,
) -> OfflineTrainer:
    """Many updates from a dataset on the device as one program."""
    from rl_training.jax.host import HostAlgorithm
    from rl_training.jax.programs.sharing import fingerprint, shared
    from rl_training.jax.training.offline import make_offline_driver
    from rl_training.training.offline.compiled import CompiledOfflineTrainer

    agent, functions = cast(HostAlgorithm, algorithm), cast(HostAlgorithm, algorithm).functions
    batch_size = terms.schedule.batch_size // terms.updates_per_learn
    rows, episodes = len(replay), len(replay.data.starts)  # a compiled program has the sizes of its dataset
    key = fingerprint("offline", agent.description, batch_size, rows, episodes)
    types = (cfg.network.actor.type, cfg.network.critic.type, optimizer_type(cfg.hparams))
    own = str(spec.functional).startswith("rl_training.") and not cfg.plugins and not any(":" in name for name in types)
    driver = shared(key, lambda: make_offline_driver(functions, batch_size, key if own else None))
    return CompiledOfflineTrainer(agent, driver, replay, terms, settings)


def build_dataset_replay(
    cfg: TrainConfig, hparams: Any, data: Dataset, sequences: SequenceOptions | None
) -> DatasetReplay:
    """Batches of a dataset: transitions, sequences for networks with memory, or windows for a sequence model."""
    rng, known = Streams(cfg.seed)("buffer"), isinstance(hparams, OfflineHparams)
    if sequences is not None:
        kind = DatasetWindows if known and hparams.reads_windows else DatasetSequences
        return kind(data, rng, cfg.dataset, sequences.length)
    if not known:
        return DatasetReplay(data, rng, cfg.dataset)
    return DatasetReplay(data, rng, cfg.dataset, hparams.dataset_columns, hparams.gamma)


def prepare_for_dataset(algorithm: Algorithm, cfg: TrainConfig, data: Dataset) -> None:
    """What an algorithm is told of its dataset before the first update: statistics of observations, returns."""
    if cfg.env.normalize_obs:
        freeze_statistics(algorithm, data)
    if isinstance(algorithm, AimsAtReturns):
        if cfg.dataset.reward != "raw":
            raise ConfigError(f"'{cfg.algo}' asks the environment for a return: leave dataset.reward at raw")
        algorithm.aim_at(data.returns[data.whole] if data.whole.any() else data.returns)


def check_environment(cfg: TrainConfig, env_fn: EnvFn | None, data: Dataset) -> None:
    """ConfigError where the environment of the evaluations has other spaces than the dataset."""
    env = eval_env_maker(cfg, env_fn)(0)
    found = space_spec(env.observation_space), space_spec(env.action_space)
    env.close()
    check_spaces_of(cfg, found, data)


def check_spaces_of(cfg: TrainConfig, found: Spaces, data: Dataset) -> None:
    """ConfigError where spaces are not those of the dataset."""
    if (misfit := unlike(data, found)) is not None:
        raise ConfigError(
            f"environment '{cfg.env_id}' has the {misfit.what} space {misfit.own}, the dataset '{cfg.dataset.path}' of "
            f"'{data.info.env_id}' has {misfit.theirs}: give --env-id {data.info.env_id}"
        )


class Misfit(NamedTuple):
    """A space that differs from that of a dataset, in words."""

    what: str
    """observation or action."""
    own: str
    theirs: str
    """That of the dataset."""


def unlike(data: Dataset, found: Spaces) -> Misfit | None:
    """The first space that is not that of the dataset."""
    for what, theirs, own in zip(("observation", "action"), data.info.spaces, found, strict=True):
        if not fits(theirs, own, bounds=what == "action"):
            return Misfit(what, describe(own), describe(theirs))
    return None


def freeze_statistics(algorithm: Algorithm, data: Dataset) -> None:
    """Mean and standard deviation of the dataset's observations, in the policy; they never move again."""
    for start in range(0, len(data), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(data)))
        algorithm.observe({"obs": data.obs_of(rows), "valid": np.ones(len(rows), np.bool_)})
