"""From a config with `training.shards` to the trainer of one rank: environments, replay and streams of its shards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rl_training.assembly.algorithm import build_algorithm, resolve_algorithm
from rl_training.assembly.buffers import (
    REPLAY_SIZE,
    annealing,
    build_replay,
    build_rollout_buffer,
    memory_bytes,
    rollout_sizes,
)
from rl_training.assembly.environments import EnvFn
from rl_training.assembly.multi_agent.games import check_game
from rl_training.config.schema import TrainConfig
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.storage import MEMORY_SHARE
from rl_training.distributed.ranks import Ranks, RankShards
from rl_training.distributed.shard_trainers import (
    ReplayShard,
    Shard,
    ShardedOffPolicyTrainer,
    ShardedOnPolicyTrainer,
    ShardedTrainer,
)
from rl_training.envs import make_vector_env, space_spec
from rl_training.envs.factory import check_evaluation_spaces
from rl_training.guards import Guard
from rl_training.hparams.off_policy import block_steps
from rl_training.runs.budgets import Budget
from rl_training.seeding import Streams
from rl_training.system import memory_limits
from rl_training.training.collector import Collector
from rl_training.training.contract import replay_terms, rollout_length
from rl_training.training.loop import RunSettings
from rl_training.training.off_policy import Sink
from rl_training.types import Algorithm, ConfigError, JointSpec, Progress


def build_sharded(cfg: TrainConfig, env_fn: EnvFn | None, ranks: Ranks | None = None) -> ShardedTrainer:
    """The trainer of this rank; without `ranks` this process has all shards."""
    spec, hparams = resolve_algorithm(cfg)
    if not spec.shards:
        raise ConfigError(f"training.shards: algorithm '{cfg.algo}' cannot learn in shards; set training.shards: 1")
    shards = RankShards(ranks or Ranks(), cfg.training.shards)
    guard = Guard(cfg.monitor.checks, Progress())
    each = cfg.env.num_envs // shards.count
    envs: list[Any] = []
    try:
        envs.extend(make_vector_env(cfg, each, env_fn=env_fn, first_index=number * each) for number in shards.own)
        spaces = space_spec(envs[0].single_observation_space), space_spec(envs[0].single_action_space)
        if isinstance(spaces[0], JointSpec) or check_game(cfg, envs[0].metadata):
            raise ConfigError("training.shards is not possible with several agents; set training.shards: 1")
        if cfg.training.num_eval_episodes:
            check_evaluation_spaces(cfg, envs[0], env_fn)
        algorithm = build_algorithm(cfg, spec, hparams, *spaces, guard, shards)
        streams, info_keys = Streams(cfg.seed), cfg.logging.info_keys
        own = [
            Shard(
                number,
                number * each,
                Collector(env, algorithm.policy, streams("actions", number), info_keys=info_keys, guard=guard),
            )
            for number, env in zip(shards.own, envs, strict=True)
        ]
        training = cfg.training
        settings = RunSettings(guard, spaces, training.total_episodes, [Budget(0, training.budget)])
        if spec.kind == "off_policy":
            return off_policy(cfg, env_fn, hparams, algorithm, shards, own, settings)
        num_steps = rollout_length(hparams)
        small = for_shard(cfg, None if cfg.buffer.size is None else num_steps * each)
        buffers = [build_rollout_buffer(small, spaces, num_steps, count=len(own)) for _ in own]
        return ShardedOnPolicyTrainer(algorithm, shards, own, buffers, num_steps, settings)
    except BaseException:
        for env in envs:
            env.close()
        raise


def off_policy(
    cfg: TrainConfig,
    env_fn: EnvFn | None,
    hparams: Any,
    algorithm: Algorithm,
    shards: RankShards,
    own: list[Shard],
    settings: RunSettings,
) -> ShardedOffPolicyTrainer:
    """Replay for every shard of this rank: an equal share of `buffer.size`, filled by its own environments."""
    terms, progress = replay_terms(algorithm, hparams), settings.guard.progress
    small = for_shard(cfg, (cfg.buffer.size or REPLAY_SIZE) // shards.count)
    normalizes = cfg.env.normalize_obs or cfg.env.normalize_reward
    replays: list[ReplayShard] = []
    for shard in own:
        buffer = build_replay(small, settings.spaces, terms.options, env_fn, shard.number)
        check_memory(memory_bytes(buffer), shards.count)
        block = None
        if normalizes:
            block = RolloutBuffer(**rollout_sizes(small, settings.spaces, block_steps(cfg.env.num_envs)))
        anneal = annealing(terms.options, buffer, progress, cfg.training.total_timesteps)
        replays.append(ReplayShard(buffer, Sink(buffer, settings.guard, block), anneal))
    return ShardedOffPolicyTrainer(algorithm, shards, own, replays, terms, settings)


def for_shard(cfg: TrainConfig, buffer_size: int | None) -> TrainConfig:
    """The config as the buffer of one shard sees it."""
    env = replace(cfg.env, num_envs=cfg.env.num_envs // cfg.training.shards)
    buffer, training = replace(cfg.buffer, size=buffer_size), replace(cfg.training, shards=1)
    return replace(cfg, env=env, buffer=buffer, training=training)


def check_memory(bytes_each: int, shards: int) -> None:
    """Raise ConfigError unless the replay buffers of all shards fit into the memory of this host together."""
    found = memory_limits.room()
    if bytes_each * shards > (budget := int(MEMORY_SHARE * found.bytes)):
        raise ConfigError(
            f"the replay buffers of {shards} shards need {bytes_each * shards / 1e9:.2f} GB, {budget / 1e9:.2f} GB "
            f"available ({found.limit}): lower buffer.size"
        )
