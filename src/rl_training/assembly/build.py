"""From a config to a trainer, part by part. Nothing is written to disk here.

`build_trainer` chooses the lane; each lane is then one function from top to bottom.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from rl_training.assembly.algorithm import build_algorithm, resolve_algorithm
from rl_training.assembly.buffers import (
    annealing,
    build_replay,
    build_rollout_buffer,
    compiled_replay_size,
    rollout_sizes,
)
from rl_training.assembly.devices import as_many_threads
from rl_training.assembly.environments import EnvFn
from rl_training.assembly.lanes import check_supported, lane_of
from rl_training.assembly.offline import build_offline
from rl_training.config.schema import TrainConfig
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.envs import make_vector_env, space_spec
from rl_training.envs.factory import check_evaluation_spaces
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec
from rl_training.hparams.off_policy import block_steps
from rl_training.hparams.optimizer import optimizer_type
from rl_training.numerics.encoding import leaf_features, pictures_of
from rl_training.registry import environments
from rl_training.runs.budgets import Budget
from rl_training.runs.spaces import Spaces
from rl_training.seeding import Streams
from rl_training.training.collector import Collector
from rl_training.training.contract import replay_terms, rollout_length
from rl_training.training.host import HostTrainer
from rl_training.training.loop import RunSettings
from rl_training.training.off_policy import OffPolicyTrainer
from rl_training.training.on_policy import OnPolicyTrainer
from rl_training.training.overlap.ahead import Frozen
from rl_training.training.overlap.trainers import Beside, OverlappedOffPolicyTrainer, OverlappedOnPolicyTrainer
from rl_training.types import Algorithm, ConfigError, Progress, SpaceSpec

if TYPE_CHECKING:
    from rl_training.jax.host import HostAlgorithm
    from rl_training.training.compiled import CompiledTrainer
    from rl_training.training.offline.trainer import OfflineTrainer

    AnyTrainer = HostTrainer | CompiledTrainer | OfflineTrainer

Wrap = Callable[[Algorithm], Algorithm]


def build_trainer(cfg: TrainConfig, env_fn: EnvFn | None = None, *, to_run: bool = True) -> AnyTrainer:
    """The trainer of a config, in the lane that it asks for or that fits. Without `to_run` it is only inspected, and
    nothing is compiled in advance."""
    check_supported(cfg)
    if resolve_algorithm(cfg)[0].kind == "offline":
        return build_offline(cfg, env_fn)
    if lane_of(cfg, env_fn) == "compiled":
        return build_compiled(cfg, ahead=to_run)
    if cfg.training.eval_lane == "compiled" or cfg.training.runs_per_program > 1:
        raise ConfigError("training.eval_lane: compiled and training.runs_per_program need a run in the compiled lane")
    return build_host(cfg, env_fn)


def settings_of(cfg: TrainConfig, guard: Guard, spaces: Spaces) -> RunSettings:
    """What trainers of both lanes are told."""
    training = cfg.training
    return RunSettings(guard, spaces, training.total_episodes, [Budget(0, training.budget)])


# -- the host lane ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostParts:
    """What both kinds of host trainer are made of."""

    cfg: TrainConfig
    env_fn: EnvFn | None
    hparams: Any
    algorithm: Algorithm
    collector: Collector
    settings: RunSettings
    wrap: Wrap
    """Gives the algorithm that the trainer is to use, for instance the same one with its calls checked."""
    beside: Beside | None
    """What collects while the algorithm learns; None without `env.overlap`."""


def build_host(cfg: TrainConfig, env_fn: EnvFn | None = None, wrap: Wrap = lambda algorithm: algorithm) -> HostTrainer:
    """Gymnasium environments, algorithm, buffer and collector."""
    spec, hparams = resolve_algorithm(cfg)
    guard = Guard(cfg.monitor.checks, Progress())
    env = make_vector_env(cfg, env_fn=env_fn)
    try:
        spaces = space_spec(env.single_observation_space), space_spec(env.single_action_space)
        if cfg.training.num_eval_episodes:
            check_evaluation_spaces(cfg, env, env_fn)
        warn_of_images(cfg, spaces[0])
        algorithm = build_algorithm(cfg, spec, hparams, *spaces, guard)
        rng, info_keys = Streams(cfg.seed)("actions"), cfg.logging.info_keys
        beside = build_beside(cfg, spec, hparams, spaces) if cfg.env.overlap else None
        acting, watching = (algorithm.policy, guard) if beside is None else (beside.frozen.policy, beside.frozen.guard)
        collector = Collector(env, acting, rng, info_keys=info_keys, guard=watching)
        settings = settings_of(cfg, guard, spaces)
        parts = HostParts(cfg, env_fn, hparams, algorithm, collector, settings, wrap, beside)
        return build_off_policy(parts) if spec.kind == "off_policy" else build_on_policy(parts)
    except BaseException:
        env.close()
        raise


def build_beside(cfg: TrainConfig, spec: AlgorithmSpec, hparams: Any, spaces: Spaces) -> Beside:
    """A second algorithm, of which only the policy is used: it acts with the weights that it is given."""
    guard = Guard(cfg.monitor.checks, Progress())
    second = build_algorithm(cfg, spec, hparams, *spaces, guard)
    warmup = replay_terms(second, hparams).warmup if spec.kind == "off_policy" else second.policy
    return Beside(Frozen(second.policy, warmup, guard), as_many_threads())


def build_on_policy(parts: HostParts) -> OnPolicyTrainer:
    num_steps, algorithm = rollout_length(parts.hparams), parts.wrap(parts.algorithm)
    count = 1 if parts.beside is None else 2
    buffers = [build_rollout_buffer(parts.cfg, parts.settings.spaces, num_steps, count=count) for _ in range(count)]
    if parts.beside is None:
        return OnPolicyTrainer(algorithm, parts.collector, buffers[0], num_steps, parts.settings)
    return OverlappedOnPolicyTrainer(algorithm, parts.collector, buffers, num_steps, parts.settings, parts.beside)


def build_off_policy(parts: HostParts) -> OffPolicyTrainer:
    cfg, settings = parts.cfg, parts.settings
    terms = replay_terms(parts.algorithm, parts.hparams)
    buffer = build_replay(cfg, settings.spaces, terms.options, parts.env_fn)
    block = None
    if cfg.env.normalize_obs or cfg.env.normalize_reward:
        block = RolloutBuffer(**rollout_sizes(cfg, settings.spaces, block_steps(cfg.env.num_envs)))
    anneal = annealing(terms.options, buffer, settings.guard.progress, cfg.training.total_timesteps)
    algorithm, collector, beside = parts.wrap(parts.algorithm), parts.collector, parts.beside
    if beside is None:
        return OffPolicyTrainer(algorithm, collector, buffer, terms, settings, block=block, anneal=anneal)
    return OverlappedOffPolicyTrainer(algorithm, collector, buffer, terms, settings, beside, block=block, anneal=anneal)


def warn_of_images(cfg: TrainConfig, observation_space: SpaceSpec) -> None:
    """CrossQ has no convolutions: say what happens to image observations."""
    if cfg.backend == "torch" and cfg.algo == "crossq":
        for name, leaf in pictures_of(observation_space).items():
            warnings.warn(
                f"observation '{name}' is a picture {leaf.shape}, which crossq flattens to {leaf_features(leaf)} "
                "numbers: for convolutions take sac",
                stacklevel=2,
            )


# -- the compiled lane ------------------------------------------------------------------------------------------------


def build_compiled(cfg: TrainConfig, *, ahead: bool) -> CompiledTrainer:
    """Environment, agent and loop as one program."""
    from rl_training.jax.envs import make
    from rl_training.jax.programs.sharing import fingerprint, shared
    from rl_training.jax.training.driver import make_driver
    from rl_training.jax.training.evaluation import Evaluation
    from rl_training.training.compiled import CompiledTrainer

    spec, hparams = resolve_algorithm(cfg)
    guard = Guard(cfg.monitor.checks, Progress())
    env = make(cfg.env_id, cfg.env.kwargs, cfg.env.max_episode_steps)
    spaces = env.observation_space, env.action_space
    agent = cast("HostAlgorithm", build_algorithm(cfg, spec, hparams, *spaces, guard))
    size, runs = compiled_replay_size(cfg, env, agent.functions.replay), cfg.training.runs_per_program
    key = fingerprint(agent.description, cfg.env_id, cfg.env, size, runs)
    description = key if is_our_own(cfg, spec) else None
    driver = shared(key, lambda: make_driver(agent.functions, env, cfg.env.num_envs, size, description, runs))
    evaluation = None
    if cfg.training.eval_lane == "compiled" and (episodes := cfg.training.num_eval_episodes):
        make_evaluation = partial(Evaluation, agent.functions, env, episodes, description)
        evaluation = shared(f"{episodes} episodes of {key}", make_evaluation)
    evaluations = cfg.training.eval_steps if cfg.training.num_eval_episodes else 0
    stops = (evaluations, cfg.training.checkpoint_frequency, cfg.logging.video_frequency)
    settings = settings_of(cfg, guard, spaces)
    return CompiledTrainer(agent, driver, settings, stops=stops, ahead=ahead, evaluation=evaluation)


def is_our_own(cfg: TrainConfig, spec: AlgorithmSpec) -> bool:
    """Whether the program of a run is made of the package's own code only, so that it can be cached on disk."""
    from rl_training.jax.envs import TWINS

    names = (cfg.network.actor.type, cfg.network.critic.type, optimizer_type(cfg.hparams))
    known_env = cfg.env_id in TWINS or environments.is_builtin(cfg.env_id)
    own_algorithm = str(spec.functional).startswith("rl_training.")
    return known_env and own_algorithm and not cfg.plugins and not any(":" in name for name in names)
