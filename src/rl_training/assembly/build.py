"""From a config to a trainer, part by part. Nothing is written to disk here.

`build_trainer` chooses the lane; each lane is then one function from top to bottom.
"""

from __future__ import annotations

import warnings
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
from rl_training.assembly.multi_agent.games import check_game
from rl_training.assembly.offline import (
    Wrap,
    build_dataset_replay,
    build_offline,
    check_spaces_of,
    opened_for,
    prepare_for_dataset,
)
from rl_training.assembly.remote import MakePool, RunnerSetup, build_remote, ray_pool
from rl_training.config.schema import TrainConfig
from rl_training.data.datasets.mixed_replay import MixedReplay
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.envs import make_vector_env, space_spec
from rl_training.envs.factory import check_evaluation_spaces
from rl_training.envs.games.seat import RESULT
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec
from rl_training.hparams.off_policy import block_steps
from rl_training.hparams.optimizer import optimizer_type
from rl_training.numerics.agents import acting_agents, episode_numbers
from rl_training.numerics.encoding import leaf_features, pictures_of
from rl_training.registry import environments
from rl_training.runs.budgets import Budget
from rl_training.runs.spaces import Spaces
from rl_training.seeding import Streams
from rl_training.training.collector import Collector
from rl_training.training.contract import behaviour_policy, replay_terms, rollout_length
from rl_training.training.host import CollectorLike, HostTrainer, ResumableEnv
from rl_training.training.loop import RunSettings
from rl_training.training.off_policy import OffPolicyTrainer
from rl_training.training.offline.online import OnlineTrainer
from rl_training.training.on_policy import OnPolicyTrainer
from rl_training.training.overlap.ahead import Frozen
from rl_training.training.overlap.trainers import Beside, OverlappedOffPolicyTrainer, OverlappedOnPolicyTrainer
from rl_training.training.remote.collector import RemoteCollector
from rl_training.training.remote.trainers import RemoteOffPolicyTrainer
from rl_training.types import Algorithm, ConfigError, JointSpec, Progress, SpaceSpec

if TYPE_CHECKING:
    from rl_training.assembly.multi_agent.compiled import CompiledParts
    from rl_training.distributed.ranks import Ranks
    from rl_training.distributed.shard_trainers import ShardedTrainer
    from rl_training.jax.host import HostAlgorithm
    from rl_training.training.compiled import CompiledTrainer
    from rl_training.training.offline.trainer import OfflineTrainer

    AnyTrainer = HostTrainer | ShardedTrainer | CompiledTrainer | OfflineTrainer


def build_trainer(
    cfg: TrainConfig,
    env_fn: EnvFn | None = None,
    *,
    to_run: bool = True,
    ranks: Ranks | None = None,
    make_pool: MakePool = ray_pool,
) -> AnyTrainer:
    """The trainer of a config, in the lane that it asks for or that fits. Without `to_run` it is only inspected, and
    nothing is compiled in advance. `ranks` are the processes that share its shards, where there are several;
    `make_pool` says where its runners are (`env.collector: ray`)."""
    check_supported(cfg)
    if cfg.training.shards > 1:
        from rl_training.assembly.data_parallel.sharded import build_sharded

        return build_sharded(cfg, env_fn, ranks)
    offline = resolve_algorithm(cfg)[0].kind == "offline"
    if not offline and lane_of(cfg, env_fn) == "compiled":
        return build_compiled(cfg, ahead=to_run)
    if cfg.training.eval_lane == "compiled" or cfg.training.runs_per_program > 1:
        raise ConfigError(
            "training.eval_lane: compiled and training.runs_per_program need a run in the compiled lane that steps an "
            "environment"
        )
    if offline and cfg.dataset.online_share is None:
        return build_offline(cfg, env_fn)
    if offline and cfg.lane == "compiled":
        raise ConfigError("lane: 'compiled' is not possible where batches come from a dataset too; use lane: host")
    return build_host(cfg, env_fn, to_run=to_run, make_pool=make_pool)


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
    collector: CollectorLike
    settings: RunSettings
    wrap: Wrap
    """Gives the algorithm that the trainer is to use, for instance the same one with its calls checked."""
    beside: Beside | None
    """What collects while the algorithm learns; None without `env.overlap`."""


def build_host(
    cfg: TrainConfig,
    env_fn: EnvFn | None = None,
    wrap: Wrap = lambda algorithm: algorithm,
    *,
    to_run: bool = True,
    make_pool: MakePool = ray_pool,
) -> HostTrainer:
    """Gymnasium environments, algorithm, buffer and collector."""
    spec, hparams = resolve_algorithm(cfg)
    guard = Guard(cfg.monitor.checks, Progress())
    is_remote = cfg.env.collector != "local"
    vector = make_vector_env(cfg, 1 if is_remote else None, env_fn=env_fn)  # remote: one shows what runners will have
    env = cast(ResumableEnv, vector)
    try:
        spaces = space_spec(vector.single_observation_space), space_spec(vector.single_action_space)
        if cfg.training.num_eval_episodes:
            check_evaluation_spaces(cfg, vector, env_fn)
        warn_of_images(cfg, spaces[0])
        is_game = check_game(cfg, vector.metadata)
        algorithm = build_algorithm(cfg, spec, hparams, *spaces, guard)
        beside = build_beside(cfg, spec, hparams, spaces) if cfg.env.overlap else None
        collector: CollectorLike
        joint, counter, info_keys = spaces[0], None, cfg.logging.info_keys
        if isinstance(joint, JointSpec):
            info_keys, counter = (*episode_numbers(joint), *info_keys), partial(acting_agents, joint)
        elif is_game:
            info_keys = (RESULT, *info_keys)
        if is_remote and (is_game or counter is not None):
            raise ConfigError("env.collector: ray is for environments with one agent; set env.collector: local")
        if is_remote:
            vector.close()
            pool = make_pool(cfg, RunnerSetup(cfg, env_fn, spaces))
            collector = build_remote(cfg, pool, spec, algorithm, guard.progress, exact=env.exact, connect=to_run)
            env = collector.env
        else:
            acting, watching = behaviour_policy(algorithm), guard
            if beside is not None:
                acting, watching = beside.frozen.policy, beside.frozen.guard
            rng = Streams(cfg.seed)("actions")
            collector = Collector(vector, acting, rng, info_keys=info_keys, guard=watching, count_agents=counter)
        settings = settings_of(cfg, guard, spaces)
        parts = HostParts(cfg, env_fn, hparams, algorithm, collector, settings, wrap, beside)
        if spec.kind == "offline":
            return build_online(parts)
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
    if isinstance(collector, RemoteCollector):
        return RemoteOffPolicyTrainer(algorithm, collector, buffer, terms, settings, block=block, anneal=anneal)
    if beside is None:
        return OffPolicyTrainer(algorithm, collector, buffer, terms, settings, block=block, anneal=anneal)
    return OverlappedOffPolicyTrainer(algorithm, collector, buffer, terms, settings, beside, block=block, anneal=anneal)


def build_online(parts: HostParts) -> OnlineTrainer:
    """An offline algorithm in an environment: replay of its steps mixed with a dataset."""
    cfg, settings = parts.cfg, parts.settings
    assert cfg.dataset.online_share is not None, "otherwise no environment is stepped"
    data = opened_for(cfg)
    check_spaces_of(cfg, settings.spaces, data)
    terms = replay_terms(parts.algorithm, parts.hparams)
    dataset = build_dataset_replay(cfg, parts.hparams, data, terms.options.sequences)
    prepare_for_dataset(parts.algorithm, cfg, dataset.data)
    own = build_replay(cfg, settings.spaces, terms.options, parts.env_fn)
    mixed = MixedReplay(dataset, own, cfg.dataset.online_share, terms.updates_per_learn)
    return OnlineTrainer(parts.wrap(parts.algorithm), parts.collector, mixed, terms, settings)


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
    from rl_training.jax.programs.sharing import fingerprint, shared
    from rl_training.jax.training.driver import make_driver
    from rl_training.jax.training.evaluation import Evaluation
    from rl_training.training.compiled import CompiledTrainer

    spec, hparams = resolve_algorithm(cfg)
    guard = Guard(cfg.monitor.checks, Progress())
    parts = compiled_parts(cfg, spec, hparams, guard)
    functions, env, agents, runs = parts.functions, parts.env, parts.num_agents, cfg.training.runs_per_program
    size = compiled_replay_size(cfg, env, functions.replay, functions.sequences)
    key = fingerprint(parts.agent.description, cfg.env_id, cfg.env, size, runs)
    description = key if is_our_own(cfg, spec) else None
    driver = shared(key, lambda: make_driver(functions, env, cfg.env.num_envs * agents, size, description, runs))
    evaluation = None
    if cfg.training.eval_lane == "compiled" and (episodes := cfg.training.num_eval_episodes):
        make_evaluation = partial(Evaluation, functions, env, episodes, description, agents)
        evaluation = shared(f"{episodes} episodes of {key}", make_evaluation)
    looks = cfg.training.num_eval_episodes or functions.foresight is not None  # at the policy or at its world model
    evaluations = cfg.training.eval_steps if looks else 0
    stops = (evaluations, cfg.training.checkpoint_frequency, cfg.logging.video_frequency)
    settings = settings_of(cfg, guard, parts.spaces)
    return CompiledTrainer(
        parts.agent, driver, settings, stops=stops, ahead=ahead, evaluation=evaluation, team=parts.team
    )


def compiled_parts(cfg: TrainConfig, spec: AlgorithmSpec, hparams: Any, guard: Guard) -> CompiledParts:
    """Environment and agent; with several agents in each environment, the rows and the team that they are."""
    from rl_training.assembly.multi_agent.compiled import CompiledParts, team_parts
    from rl_training.jax.envs import find_team, make

    if find_team(cfg.env_id) is not None:
        return team_parts(cfg, spec, hparams, guard)
    env = make(cfg.env_id, cfg.env.kwargs, cfg.env.max_episode_steps)
    spaces = env.observation_space, env.action_space
    agent = cast("HostAlgorithm", build_algorithm(cfg, spec, hparams, *spaces, guard))
    return CompiledParts(agent, agent.functions, env, spaces)


def is_our_own(cfg: TrainConfig, spec: AlgorithmSpec) -> bool:
    """Whether the program of a run is made of the package's own code only, so that it can be cached on disk."""
    from rl_training.jax.envs import TEAM_TWINS, TWINS

    names = (cfg.network.actor.type, cfg.network.critic.type, optimizer_type(cfg.hparams))
    known_env = cfg.env_id in TWINS or cfg.env_id in TEAM_TWINS or environments.is_builtin(cfg.env_id)
    own_algorithm = str(spec.functional).startswith("rl_training.")
    return known_env and own_algorithm and not cfg.plugins and not any(":" in name for name in names)
