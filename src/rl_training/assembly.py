"""Assembly: from a config to a trainer, part by part. Nothing is written to disk here.

`build_trainer` is the way in; it and `trainer.py`, which runs what is built, are the only code that knows every part.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, cast

from rl_training.collector import Collector
from rl_training.config import TrainConfig
from rl_training.config_loading import check_hparams
from rl_training.context import BuildContext
from rl_training.data.priorities import Priorities
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.storage import layout
from rl_training.devices import resolve_device
from rl_training.envs import make_env, make_vector_env, space_spec
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec, supports_anything
from rl_training.hparams.off_policy import OffPolicyHparams, ReplaySchedule
from rl_training.registry import (
    algorithms,
    buffers,
    callbacks,
    check_call,
    check_methods,
    import_attr,
    import_plugins,
    loggers,
)
from rl_training.schedules import value_at
from rl_training.seeding import Streams
from rl_training.trainers.off_policy import OffPolicyTrainer, Replay, block_steps
from rl_training.trainers.on_policy import OnPolicyTrainer
from rl_training.types import Algorithm, BoxSpec, ConfigError, DictSpec, Policy, Progress, SpaceSpec
from rl_training.video import find_ffmpeg

EnvFn = Callable[[], Any]
AnyTrainer = OnPolicyTrainer | OffPolicyTrainer
REPLAY_SIZE = 1_000_000
"""Transitions a replay buffer holds where the config says nothing."""


@dataclass(frozen=True)
class Parts:
    """What every trainer is made of."""

    cfg: TrainConfig
    hparams: Any
    observation_space: SpaceSpec
    action_space: SpaceSpec
    algorithm: Algorithm
    collector: Collector
    guard: Guard

    def hparam(self, name: str, default: Any) -> Any:
        """A hyperparameter that an algorithm of a user's may or may not have."""
        if isinstance(self.hparams, Mapping):
            return self.hparams.get(name, default)
        return getattr(self.hparams, name, default)


def build_trainer(cfg: TrainConfig, env_fn: EnvFn | None = None) -> AnyTrainer:
    """Environment, algorithm, buffer and collector of a run."""
    check_supported(cfg)
    spec, hparams = resolve_algorithm(cfg)
    guard = Guard(cfg.monitor.checks, Progress())
    env = make_vector_env(cfg, env_fn=env_fn)
    try:
        observation_space, action_space = space_spec(env.single_observation_space), space_spec(env.single_action_space)
        algorithm = build_algorithm(cfg, spec, hparams, observation_space, action_space, guard)
        rng, info_keys = Streams(cfg.seed)("actions"), cfg.logging.info_keys
        collector = Collector(env, algorithm.policy, rng, info_keys=info_keys, guard=guard)
        parts = Parts(cfg, hparams, observation_space, action_space, algorithm, collector, guard)
        trainer = build_off_policy(parts) if spec.kind == "off_policy" else build_on_policy(parts)
    except BaseException:
        env.close()
        raise
    trainer.total_episodes = cfg.training.total_episodes
    return trainer


def build_on_policy(parts: Parts) -> OnPolicyTrainer:
    num_steps = int(parts.hparam("num_steps", 128))
    buffer = build_rollout_buffer(parts, num_steps)
    return OnPolicyTrainer(parts.algorithm, parts.collector, buffer, parts.guard.progress, num_steps, parts.guard)


def build_off_policy(parts: Parts) -> OffPolicyTrainer:
    cfg, algorithm = parts.cfg, parts.algorithm
    usual = OffPolicyHparams().replay
    schedule = ReplaySchedule(
        int(parts.hparam("batch_size", usual.batch_size)),
        int(parts.hparam("learning_starts", usual.learning_starts)),
        float(parts.hparam("updates_per_step", usual.updates_per_step)),
    )
    trainer = OffPolicyTrainer(
        algorithm,
        parts.collector,
        build_replay(parts),
        parts.guard.progress,
        schedule,
        parts.guard,
        warmup=cast(Policy, getattr(algorithm, "warmup", algorithm.policy)),
    )
    beta, priorities = parts.hparam("priority_beta", None), getattr(trainer.buffer, "priorities", None)
    if beta is not None and priorities is not None:
        total = cfg.training.total_timesteps
        trainer.beta = lambda: value_at(beta, trainer.progress.env_steps / total)
    if cfg.env.normalize_obs or cfg.env.normalize_reward:
        trainer.sink.block = RolloutBuffer(**rollout_sizes(parts, block_steps(cfg.env.num_envs)))
    return trainer


def check_supported(cfg: TrainConfig) -> None:
    """Refuse what this version cannot run, before anything is built."""
    import_plugins(cfg.plugins)
    if cfg.backend == "jax":
        raise ConfigError("backend: 'jax' is not available in this version; use backend: torch")
    if cfg.lane == "compiled":
        raise ConfigError("lane: 'compiled' needs backend: jax, which is not available in this version; use lane: host")
    for registry, parts in ((loggers, cfg.logging.sinks), (callbacks, cfg.callbacks)):
        for part in parts:
            registry.get(part.name)
    if cfg.logging.video_frequency > 0:
        find_ffmpeg()
    if cfg.logging.wandb.enabled and importlib.util.find_spec("wandb") is None:
        raise ConfigError("logging to W&B needs an extra: pip install 'rl-training[tracking]'")


def resolve_algorithm(cfg: TrainConfig) -> tuple[AlgorithmSpec, Any]:
    """The spec behind `algo` and its hyperparameters as the spec's own class."""
    spec = algorithms.get(cfg.algo)
    if isinstance(spec, type):
        hparams, supports = getattr(spec, "Hparams", dict), getattr(spec, "supports", supports_anything)
        spec = AlgorithmSpec(cfg.algo, getattr(spec, "kind", "on_policy"), hparams, build=spec, supports=supports)
    if not isinstance(spec, AlgorithmSpec):
        raise ConfigError(
            f"algorithm '{cfg.algo}' is a {type(spec).__name__}; it must be an AlgorithmSpec or a class such as one "
            "derived from rl_training.BaseAlgorithm"
        )
    if spec.kind == "offline":
        raise ConfigError(f"algorithm '{cfg.algo}' is offline, which this version cannot train")
    if isinstance(cfg.hparams, Mapping) and is_dataclass(spec.hparams):
        return spec, check_hparams(spec.hparams, cfg.hparams, algo=cfg.algo)
    return spec, cfg.hparams


def build_algorithm(
    cfg: TrainConfig,
    spec: AlgorithmSpec,
    hparams: Any,
    observation_space: SpaceSpec,
    action_space: SpaceSpec,
    guard: Guard,
) -> Algorithm:
    """The algorithm, if it fits the spaces. `guard` brings the run's live progress along."""
    refusal = spec.supports(observation_space, action_space)
    if refusal is not None:
        raise ConfigError(f"algorithm '{cfg.algo}' does not fit environment '{cfg.env_id}': {refusal}")
    if spec.build is None:
        raise ConfigError(f"algorithm '{cfg.algo}' has no torch implementation; use backend: jax")
    build = import_attr(spec.build, "algorithm") if isinstance(spec.build, str) else spec.build
    ctx = BuildContext(
        observation_space=observation_space,
        action_space=action_space,
        num_envs=cfg.env.num_envs,
        device=resolve_device(cfg),
        network=cfg.network,
        streams=Streams(cfg.seed),
        progress=guard.progress,
        total_timesteps=cfg.training.total_timesteps,
        normalize_obs=cfg.env.normalize_obs,
        normalize_reward=cfg.env.normalize_reward,
        guard=guard,
    )
    what = f"algorithm '{cfg.algo}'"
    check_call(build, what, {"ctx": ctx, "hparams": hparams})
    algorithm = build(ctx, hparams)
    base = "derive it from rl_training.BaseAlgorithm, or see the protocols in rl_training.types"
    check_methods(algorithm, ("update", "observe", "state_dict", "load_state_dict"), what, base)
    policy = getattr(algorithm, "policy", None)
    check_methods(policy, ("act", "initial_carry", "state_dict", "load_state_dict"), f"the policy of {what}", base)
    return cast(Algorithm, algorithm)


def rollout_sizes(parts: Parts, num_steps: int) -> dict[str, Any]:
    """The arguments of a RolloutBuffer for these spaces."""
    if isinstance(parts.action_space, DictSpec):
        raise ConfigError(f"environment '{parts.cfg.env_id}' has a Dict action space, which no algorithm here can use")
    obs_shape, obs_dtype = layout(parts.observation_space)
    return {
        "num_steps": num_steps,
        "num_envs": parts.cfg.env.num_envs,
        "obs_shape": obs_shape,
        "action_shape": parts.action_space.shape,
        "obs_dtype": obs_dtype,
        "action_dtype": parts.action_space.dtype,
    }


def build_rollout_buffer(parts: Parts, num_steps: int) -> RolloutBuffer:
    cfg, sizes = parts.cfg, rollout_sizes(parts, num_steps)
    kind = buffers.get(cfg.buffer.type or "rollout")
    if not (isinstance(kind, type) and issubclass(kind, RolloutBuffer)):
        raise ConfigError(
            f"buffer.type '{cfg.buffer.type}' does not fit '{cfg.algo}', which learns from rollouts; "
            "derive it from rl_training.data.rollout_buffer.RolloutBuffer"
        )
    check_call(kind, f"buffer '{cfg.buffer.type}'", kwargs=sizes)
    return kind(**sizes)


def build_replay(parts: Parts) -> Replay:
    """The replay buffer that the config or the algorithm asks for."""
    cfg, action_space = parts.cfg, parts.action_space
    assert not isinstance(action_space, DictSpec), "refused by every algorithm"
    name = cfg.buffer.type or "replay"
    kind = buffers.get(name)
    obs_shape, obs_dtype = layout(parts.observation_space)
    keywords: dict[str, Any] = {
        "obs_dtype": obs_dtype,
        "action_dtype": "float32" if isinstance(action_space, BoxSpec) else action_space.dtype,
        "num_envs": cfg.env.num_envs,
        "rng": Streams(cfg.seed)("buffer"),
        "n_step": int(parts.hparam("n_step", 1)),
        "gamma": float(parts.hparam("gamma", 0.99)),
        "on_memory": cfg.buffer.on_memory,
    }
    alpha = float(parts.hparam("priority_alpha", 0.6))
    if name == "prioritized":
        keywords["alpha"] = alpha
    elif parts.hparam("prioritized", False):
        keywords["priorities"] = Priorities(alpha)
    if name == "her":
        keywords["compute_reward"] = goal_function(parts, "compute_reward", required=True)
        keywords["compute_terminated"] = goal_function(parts, "compute_terminated", required=False)
    sizes = {"capacity": cfg.buffer.size or REPLAY_SIZE, "obs_shape": obs_shape, "action_shape": action_space.shape}
    check_call(kind, f"buffer.type '{name}'", sizes, kwargs=keywords)
    buffer = kind(*sizes.values(), **keywords)
    what = f"buffer.type '{name}', from which '{cfg.algo}' is to learn,"
    check_methods(buffer, ("store", "sample", "__len__", "state_dict"), what, "derive it from data.ReplayBuffer")
    return cast(Replay, buffer)


def goal_function(parts: Parts, name: str, *, required: bool) -> Any:
    """A function of goals that the environment has: (achieved, desired, info) -> rewards, or whether that ends it."""
    env = make_env(parts.cfg.env_id, parts.cfg.env, seed=parts.cfg.seed)
    function = getattr(env.unwrapped, name, None)
    if function is None:
        env.close()
    if function is None and required:
        raise ConfigError(
            f"buffer.type 'her' gives old transitions new goals: environment '{parts.cfg.env_id}' needs a method "
            f"{name}(achieved_goal, desired_goal, info)"
        )
    return function


def eval_env_maker(cfg: TrainConfig, env_fn: EnvFn | None, *, render: bool = False) -> Callable[[int], Any]:
    """Makes evaluation environments: the same stack without what is for training only."""
    mode = "rgb_array" if render else None
    return lambda i: make_env(env_fn or cfg.env_id, cfg.env, seed=cfg.seed, index=i, training=False, render_mode=mode)
