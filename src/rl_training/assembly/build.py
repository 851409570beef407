"""Assembly: from a config to a trainer, part by part. Nothing is written to disk here.

`build_trainer` is the way in; it and `trainer.py`, which runs what is built, are the only code that knows every part.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rl_training.assembly.devices import resolve_device, without_device
from rl_training.build_context import BuildContext
from rl_training.config.loading import check_hparams
from rl_training.config.schema import TrainConfig
from rl_training.data.n_step import check_n_step
from rl_training.data.priorities import Priorities
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.storage import check_rollout_memory, fit_capacity, layout, row_bytes
from rl_training.envs import make_env, make_vector_env, space_spec
from rl_training.envs.factory import check_evaluation_spaces
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec, supports_anything
from rl_training.hparams.off_policy import OffPolicyHparams, ReplaySchedule, block_steps
from rl_training.hparams.schedules import value_at
from rl_training.logging.video import find_ffmpeg
from rl_training.numerics.encoding import leaf_features, pictures_of
from rl_training.registry import (
    algorithms,
    buffers,
    callbacks,
    check_call,
    check_methods,
    environments,
    import_own,
    import_plugins,
    loggers,
)
from rl_training.runs.names import env_fn_of
from rl_training.seeding import Streams
from rl_training.training.collector import Collector
from rl_training.training.off_policy import OffPolicyTrainer, Replay
from rl_training.training.on_policy import OnPolicyTrainer
from rl_training.types import Algorithm, BoxSpec, ConfigError, DictSpec, Policy, Progress, SpaceSpec

if TYPE_CHECKING:
    from rl_training.jax.host import HostAlgorithm
    from rl_training.jax.types import JaxEnv
    from rl_training.training.compiled import CompiledTrainer

    AnyTrainer = OnPolicyTrainer | OffPolicyTrainer | CompiledTrainer

EnvFn = Callable[[], Any]
HostTrainer = OnPolicyTrainer | OffPolicyTrainer
REPLAY_SIZE = 1_000_000
"""Transitions a replay buffer holds where the config says nothing."""
ROLLOUT_ROW = 24
"""Bytes of a rollout's row besides observation and action: reward, ends, log-probability, value."""


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
    env_fn: EnvFn | None = None

    def hparam(self, name: str, default: Any) -> Any:
        """A hyperparameter that an algorithm of a user's may or may not have."""
        if isinstance(self.hparams, Mapping):
            return self.hparams.get(name, default)
        return getattr(self.hparams, name, default)


def build_trainer(cfg: TrainConfig, env_fn: EnvFn | None = None, *, to_run: bool = True) -> AnyTrainer:
    """Everything a run consists of, in the lane that the config asks for or that fits; not `to_run`, it is looked at
    alone, and nothing is compiled in advance."""
    check_supported(cfg)
    lane = lane_of(cfg, env_fn)
    if lane == "host" and (cfg.training.eval_lane == "compiled" or cfg.training.runs_per_program > 1):
        raise ConfigError("training.eval_lane: compiled and training.runs_per_program need a run in the compiled lane")
    trainer = build_compiled(cfg, ahead=to_run) if lane == "compiled" else build_host(cfg, env_fn)
    trainer.total_episodes = cfg.training.total_episodes
    return trainer


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
    algorithm = build_algorithm(cfg, spec, hparams, env.observation_space, env.action_space, guard)
    agent = cast("HostAlgorithm", algorithm)
    size, runs = replay_size(cfg, env, agent.functions.replay), cfg.training.runs_per_program
    key = fingerprint(agent.description, cfg.env_id, cfg.env, size, runs)
    description = key if is_our_own(cfg, spec) else None
    driver = shared(key, lambda: make_driver(agent.functions, env, cfg.env.num_envs, size, description, runs))
    evaluations = cfg.training.eval_steps if cfg.training.num_eval_episodes else 0
    stops = (evaluations, cfg.training.checkpoint_frequency, cfg.logging.video_frequency)
    trainer = CompiledTrainer(agent, driver, guard.progress, guard, stops=stops, ahead=ahead)
    trainer.spaces = env.observation_space, env.action_space
    if cfg.training.eval_lane == "compiled" and (episodes := cfg.training.num_eval_episodes):
        make_evaluation = partial(Evaluation, agent.functions, env, episodes, description)
        trainer.evaluation = shared(f"{episodes} episodes of {key}", make_evaluation)
    return trainer


def is_our_own(cfg: TrainConfig, spec: AlgorithmSpec) -> bool:
    """Whether a run's program is made of nothing but the package's own code."""
    from rl_training.jax.envs import TWINS

    names = (cfg.network.actor.type, cfg.network.critic.type)
    known_env = cfg.env_id in TWINS or environments.is_builtin(cfg.env_id)
    own_algorithm = str(spec.functional).startswith("rl_training.")
    return known_env and own_algorithm and not cfg.plugins and not any(":" in name for name in names)


def replay_size(cfg: TrainConfig, env: JaxEnv, schedule: ReplaySchedule | None) -> int:
    """Transitions that fit: what the config asks for, refused or made smaller where there is no memory for it."""
    if schedule is None:
        return 0
    obs_row, action_row = (row_bytes(*layout(space)) for space in (env.observation_space, env.action_space))
    size = fit_capacity(cfg.buffer.size or REPLAY_SIZE, 2 * obs_row + action_row + 6, on_memory=cfg.buffer.on_memory)
    check_n_step(schedule.n_step, None if schedule.n_step == 1 else 1.0, size, cfg.env.num_envs)
    return size


def build_host(cfg: TrainConfig, env_fn: EnvFn | None = None) -> HostTrainer:
    """Gymnasium environments, algorithm, buffer and collector."""
    spec, hparams = resolve_algorithm(cfg)
    guard = Guard(cfg.monitor.checks, Progress())
    env = make_vector_env(cfg, env_fn=env_fn)
    try:
        observation_space, action_space = space_spec(env.single_observation_space), space_spec(env.single_action_space)
        if cfg.training.num_eval_episodes:
            check_evaluation_spaces(cfg, env, env_fn)
        if spec.kind != "static":
            warn_of_pictures(cfg, observation_space)
        algorithm = build_algorithm(cfg, spec, hparams, observation_space, action_space, guard)
        rng, info_keys = Streams(cfg.seed)("actions"), cfg.logging.info_keys
        collector = Collector(env, algorithm.policy, rng, info_keys=info_keys, guard=guard)
        parts = Parts(cfg, hparams, observation_space, action_space, algorithm, collector, guard, env_fn)
        trainer = build_off_policy(parts) if spec.kind == "off_policy" else build_on_policy(parts)
    except BaseException:
        env.close()
        raise
    trainer.spaces = observation_space, action_space
    return trainer


def warn_of_pictures(cfg: TrainConfig, observation_space: SpaceSpec) -> None:
    """Torch has no convolutions yet: say where a picture goes."""
    if cfg.backend == "torch" and "mlp" in (cfg.network.actor.type, cfg.network.critic.type):
        for name, leaf in pictures_of(observation_space).items():
            warnings.warn(
                f"observation '{name}' is a picture {leaf.shape}, which network 'mlp' flattens to "
                f"{leaf_features(leaf)} numbers: for convolutions use --backend jax with network.actor.type and "
                "network.critic.type cnn, or a network of your own (network.actor.type: 'package.module:Class')",
                stacklevel=2,
            )


def build_on_policy(parts: Parts) -> OnPolicyTrainer:
    num_steps = int(parts.hparam("num_steps", 128))
    buffer = build_rollout_buffer(parts, num_steps)
    return OnPolicyTrainer(parts.algorithm, parts.collector, buffer, parts.guard.progress, num_steps, parts.guard)


def build_off_policy(parts: Parts) -> OffPolicyTrainer:
    cfg, algorithm = parts.cfg, parts.algorithm
    usual = OffPolicyHparams().replay
    schedule = getattr(algorithm, "schedule", None) or ReplaySchedule(
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
        prepare_jax(cfg)
    elif cfg.lane == "compiled":
        raise ConfigError("lane: 'compiled' needs backend: jax")
    for registry, parts in ((loggers, cfg.logging.sinks), (callbacks, cfg.callbacks)):
        for part in parts:
            registry.get(part.name)
    if cfg.logging.video_frequency > 0:
        find_ffmpeg()
    if cfg.logging.wandb.enabled and importlib.util.find_spec("wandb") is None:
        raise ConfigError("logging to W&B needs an extra: pip install 'rl-training[tracking]'")


def prepare_jax(cfg: TrainConfig) -> None:
    """Set jax up before anything computes with it."""
    if any(importlib.util.find_spec(name) is None for name in ("jax", "jaxlib")):
        raise ConfigError("backend: 'jax' needs an extra: pip install 'rl-training[jax]'")
    if cfg.monitor.debug.enabled:
        raise ConfigError(
            "debug mode (--debug, monitor.debug) looks into the modules of torch; use backend: 'torch', where the run "
            "starts from the same weights. With backend: 'jax' a NaN or Inf is named without it (monitor.checks)"
        )
    from rl_training.jax.runtime import configure, use_device

    configure(cfg.training.num_threads, cfg.device)
    if not use_device(cfg.device):
        without_device(cfg)


def lane_of(cfg: TrainConfig, env_fn: EnvFn | None = None) -> str:
    """host or compiled. `auto` compiles wherever nothing stands against it; `compiled` says what does."""
    if cfg.backend != "jax" or cfg.lane == "host":
        return "host"
    against = against_compiling(cfg, env_fn)
    if against is None:
        return "compiled"
    if cfg.lane == "compiled":
        raise ConfigError(f"lane: 'compiled' is not possible: {against}; use lane: host")
    return "host"


def against_compiling(cfg: TrainConfig, env_fn: EnvFn | None = None) -> str | None:
    """Why a run cannot be one compiled program; None where it can."""
    from rl_training.jax.envs import find

    if env_fn is not None:
        return "env_fn makes a Gymnasium environment"
    settings = {
        "env.wrappers": bool(cfg.env.wrappers),
        "env.frame_stack": cfg.env.frame_stack > 1,
        "env.vectorization": cfg.env.vectorization != "sync",
        "buffer.type": cfg.buffer.type is not None,
        "logging.trace": cfg.logging.trace,
        "logging.info_keys": bool(cfg.logging.info_keys),
    }
    for name, is_set in settings.items():
        if is_set:
            return f"{name} is for Gymnasium environments"
    if find(cfg.env_id) is None:
        return f"environment '{cfg.env_id}' has no form in JAX"
    return None


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
    ctx = BuildContext(
        observation_space=observation_space,
        action_space=action_space,
        num_envs=cfg.env.num_envs,
        device=resolve_device(cfg) if cfg.backend == "torch" else "cpu",
        network=cfg.network,
        streams=Streams(cfg.seed),
        progress=guard.progress,
        total_timesteps=cfg.training.total_timesteps,
        normalize_obs=cfg.env.normalize_obs,
        normalize_reward=cfg.env.normalize_reward,
        guard=guard,
    )
    if cfg.backend == "jax":
        return build_jax(cfg, spec, hparams, ctx)
    if spec.build is None:
        raise ConfigError(f"algorithm '{cfg.algo}' has no torch implementation; use backend: jax")
    build = import_own(spec.build, "algorithm") if isinstance(spec.build, str) else spec.build
    what = f"algorithm '{cfg.algo}'"
    check_call(build, what, {"ctx": ctx, "hparams": hparams})
    algorithm = build(ctx, hparams)
    base = "derive it from rl_training.BaseAlgorithm, or see the protocols in rl_training.types"
    check_methods(algorithm, ("update", "observe", "state_dict", "load_state_dict"), what, base)
    policy = getattr(algorithm, "policy", None)
    check_methods(policy, ("act", "initial_carry", "state_dict", "load_state_dict"), f"the policy of {what}", base)
    return cast(Algorithm, algorithm)


def build_jax(cfg: TrainConfig, spec: AlgorithmSpec, hparams: Any, ctx: BuildContext) -> Algorithm:
    """The JAX twin of an algorithm."""
    if spec.functional is None:
        raise ConfigError(f"algorithm '{cfg.algo}' has no JAX implementation; use backend: torch")
    from rl_training.jax.host import build_agent

    return build_agent(ctx, spec, hparams)


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
    obs_row, action_row = (row_bytes(*layout(space)) for space in (parts.observation_space, parts.action_space))
    check_rollout_memory(num_steps, cfg.env.num_envs, obs_row + action_row + ROLLOUT_ROW)
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
    env = make_env(parts.env_fn or parts.cfg.env_id, parts.cfg.env, seed=parts.cfg.seed)
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


def need_env_fn(run: Path, cfg: TrainConfig, env_fn: EnvFn | None, verb: str) -> None:
    """Refuse to use a run whose environment was a function without that function."""
    name = env_fn_of(cfg.env_id)
    if name is not None and env_fn is None:
        raise ConfigError(
            f"run '{run.name}' was trained on the function '{name}' (env_fn=...), which is not stored with it; give it "
            f"again from Python: rl_training.{verb}('{run}', env_fn=...)"
        )
