"""Whether the parts of a config fit each other: offline algorithms, ways of collecting, rollouts, shards.

Each function takes a whole config and raises ConfigError, or returns what follows from it; the schema calls them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rl_training.config.sections.learning import BufferConfig, DatasetConfig, TrainingConfig
from rl_training.hparams.base import AlgorithmSpec, Lagging, Minibatched, OnPolicyHparams
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.registry import algorithms
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from rl_training.config.schema import TrainConfig

OFFLINE_UPDATES = 50_000
"""Updates of an offline run whose config does not say."""


def builtin_spec(algo: str) -> AlgorithmSpec | None:
    """The spec of one of the package's algorithms; None for any other, so that no user code is imported."""
    if not algorithms.is_builtin(algo):
        return None
    spec: AlgorithmSpec = algorithms.get(algo)
    return spec


def offline_training(cfg: TrainConfig) -> TrainingConfig:
    """The section `training` of a config whose dataset and budget fit its algorithm, with the default number of updates
    of offline algorithms, which learn from a dataset and count updates; no other algorithm does either."""
    spec, training = builtin_spec(cfg.algo), cfg.training
    if spec is None or spec.kind != "offline":
        if spec is not None and (training.total_updates is not None or cfg.dataset != DatasetConfig()):
            raise ConfigError(f"dataset and training.total_updates are for offline algorithms, not '{cfg.algo}'")
        return training
    if cfg.dataset.online_share is not None:
        check_online(cfg)
        return training
    if training.total_timesteps != TrainingConfig.total_timesteps or training.total_episodes is not None:
        raise ConfigError(
            f"'{cfg.algo}' is offline and steps no environment: give training.total_updates instead of "
            "total_timesteps or total_episodes"
        )
    unused = {
        "env.overlap": cfg.env.overlap,
        "env.collector": cfg.env.collector != "local",
        "env.normalize_reward": cfg.env.normalize_reward,
        "buffer": cfg.buffer != BufferConfig(),
        "logging.trace": cfg.logging.trace,
        "logging.record": cfg.logging.record,
        "logging.info_keys": bool(cfg.logging.info_keys),
        "monitor.debug": cfg.monitor.debug.enabled,
    }
    if used := [name for name, is_used in unused.items() if is_used]:
        raise ConfigError(f"'{cfg.algo}' is offline and steps no environment: {', '.join(used)} cannot be used")
    return training if training.total_updates is not None else replace(training, total_updates=OFFLINE_UPDATES)


def check_online(cfg: TrainConfig) -> None:
    """An offline algorithm that goes on in an environment: it counts env steps and has a plain replay buffer."""
    if not cfg.hparams.goes_online:
        raise ConfigError(f"'{cfg.algo}' only imitates a dataset: it learns nothing from an environment")
    if cfg.training.total_updates is not None:
        raise ConfigError("a run with dataset.online_share counts env steps: give training.total_timesteps")
    unused = {
        "env.overlap": cfg.env.overlap,
        "env.collector": cfg.env.collector != "local",
        "env.normalize_reward": cfg.env.normalize_reward,
        "buffer.type": cfg.buffer.type not in (None, "replay", "uniform"),
    }
    if used := [name for name, is_used in unused.items() if is_used]:
        raise ConfigError(f"{', '.join(used)} cannot be used where batches come from a dataset too")


def check_priorities(cfg: TrainConfig, spec: AlgorithmSpec) -> None:
    """Refuse a prioritised buffer for an algorithm that gives it no priorities: it would draw uniformly."""
    if cfg.buffer.type == "prioritized" and not spec.prioritizes:
        raise ConfigError(
            f"'{cfg.algo}' gives a replay buffer no priorities, so buffer.type prioritized would draw uniformly; "
            "leave it out"
        )


def check_collection(cfg: TrainConfig, spec: AlgorithmSpec) -> None:
    """Refuse a way of collecting that does not fit the algorithm."""
    env = cfg.env
    if env.max_policy_lag is not None and (env.collection == "sync" or spec.kind != "on_policy"):
        raise ConfigError("env.max_policy_lag is for rollouts that are collected with env.collection: async (impala)")
    if env.collection == "async" and not spec.takes_late_data:
        raise ConfigError(
            f"env.collection is async, and '{cfg.algo}' does not correct for what earlier policies collected; take "
            "algo: impala, or dqn with buffer.type: prioritized (Ape-X), or env.collection: sync"
        )
    if env.collection == "async" and spec.kind == "on_policy" and env.normalize_reward:
        raise ConfigError(
            "env.normalize_reward follows each environment from rollout to rollout, which come in any order with "
            "env.collection: async; scale rewards with the wrapper scale_reward"
        )
    is_lagging = isinstance(cfg.hparams, Lagging) and cfg.hparams.policy_lag > 0
    if is_lagging and (env.collector != "local" or env.overlap):
        raise ConfigError("hparams.policy_lag is for env.collector: local without env.overlap")


def rollout_steps(cfg: TrainConfig) -> int | None:
    """The `num_steps` of an on-policy config whose `buffer.size` says another number than its default; else None."""
    spec = builtin_spec(cfg.algo)
    if cfg.buffer.size is None or spec is None or spec.kind != "on_policy":
        return None
    num_steps: int = cfg.hparams.num_steps
    may_change = num_steps == spec.hparams().num_steps
    steps = steps_for_buffer(cfg.buffer.size, num_steps, cfg.env.num_envs, may_change=may_change)
    return None if steps == num_steps else steps


def steps_for_buffer(size: int, num_steps: int, num_envs: int, *, may_change: bool) -> int:
    """The `num_steps` that `buffer.size` implies; ConfigError if it fits no rollout or contradicts a given one."""
    if size == num_steps * num_envs:
        return num_steps
    if not may_change:
        raise ConfigError(
            f"buffer.size {size} is not hparams.num_steps {num_steps} x env.num_envs {num_envs} = "
            f"{num_steps * num_envs}; drop one of them or make them agree"
        )
    if size % num_envs:
        raise ConfigError(f"buffer.size {size} is not a multiple of env.num_envs {num_envs}, so no rollout fills it")
    return size // num_envs


def check_minibatches(cfg: TrainConfig) -> None:
    """A rollout has at least one row for each minibatch."""
    if not isinstance(cfg.hparams, Minibatched):
        return
    count, num_steps = cfg.hparams.num_minibatches, cfg.hparams.num_steps
    if count > 1 and count > num_steps * cfg.env.num_envs:
        raise ConfigError(
            f"hparams.num_minibatches {count} is more than the rollout has rows: hparams.num_steps "
            f"{num_steps} x env.num_envs {cfg.env.num_envs}"
        )


def against_shards(cfg: TrainConfig) -> str | None:
    """Why the batches of a run cannot be split into its `training.shards`, with the cure; None where they can."""
    spec, shards, num_envs = builtin_spec(cfg.algo), cfg.training.shards, cfg.env.num_envs
    if cfg.backend == "jax":
        return "shards are for backend: torch; with jax take training.runs_per_program, which uses every device"
    if spec is not None and not spec.shards:
        return f"algorithm '{cfg.algo}' cannot learn in shards; take one of {', '.join(sharded_algorithms())}"
    unfit = {
        "env.overlap: true": cfg.env.overlap,
        "env.collector: ray": cfg.env.collector != "local",
        "env.vectorization: native, which has one random stream for all environments": cfg.env.vectorization
        == "native",
        "logging.trace: true": cfg.logging.trace,
        "logging.record: true": cfg.logging.record,
        "monitor.debug (--debug)": cfg.monitor.debug.enabled,
        "hparams.exploration": isinstance(cfg.hparams, OnPolicyHparams) and cfg.hparams.has_intrinsic_value,
    }
    if used := [name for name, is_used in unfit.items() if is_used]:
        return f"this does not go with {', '.join(used)}"
    if num_envs % shards:
        return f"it does not divide env.num_envs {num_envs}; every shard has environments of its own"
    if isinstance(cfg.hparams, OffPolicyHparams) and cfg.hparams.batch_size % shards:
        return f"it does not divide hparams.batch_size {cfg.hparams.batch_size}"
    if isinstance(cfg.hparams, Minibatched):
        rows, count = cfg.hparams.num_steps * num_envs // shards, cfg.hparams.num_minibatches
        if rows < count:
            return f"a shard has {rows} rows of a rollout, fewer than hparams.num_minibatches {count}"
    return None


def sharded_algorithms() -> list[str]:
    """The package's algorithms that learn in shards."""
    return [name for name in algorithms.names() if (spec := builtin_spec(name)) is not None and spec.shards]
