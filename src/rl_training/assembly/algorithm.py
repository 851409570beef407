"""From `algo` and `hparams` to an algorithm that fits the spaces; with several agents to a team of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from rl_training.assembly.devices import resolve_device
from rl_training.assembly.multi_agent.teams import build_team, check_names
from rl_training.build_context import BuildContext, Shards
from rl_training.config.loading import check_hparams
from rl_training.config.multi_agent.agents import AgentsConfig
from rl_training.config.schema import TrainConfig
from rl_training.config.yaml_reader import plain_copy
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec
from rl_training.registry import algorithms, check_call, import_own
from rl_training.seeding import Streams
from rl_training.training.contract import checked, spec_of_class
from rl_training.types import Algorithm, ConfigError, JointSpec, SpaceSpec


def resolve_algorithm(cfg: TrainConfig) -> tuple[AlgorithmSpec, Any]:
    """The spec behind `algo`, and the hyperparameters as the class that the spec names."""
    return resolve(cfg.algo, cfg.hparams)


def build_algorithm(
    cfg: TrainConfig,
    spec: AlgorithmSpec,
    hparams: Any,
    observation_space: SpaceSpec,
    action_space: SpaceSpec,
    guard: Guard,
    shards: Shards | None = None,
) -> Algorithm:
    """The algorithm, if it fits the spaces; for several agents a team of them. `guard` carries the live progress of the
    run; `shards` is given where its batches come in shards."""
    ctx = BuildContext(
        observation_space=observation_space,
        action_space=action_space,
        num_envs=cfg.env.num_envs,
        device=resolve_device(cfg) if cfg.backend == "torch" else "cpu",
        network=cfg.network,
        streams=Streams(cfg.seed),
        progress=guard.progress,
        total_timesteps=cfg.training.budget,
        normalize_obs=cfg.env.normalize_obs,
        normalize_reward=cfg.env.normalize_reward,
        guard=guard,
        shards=shards,
    )
    if isinstance(observation_space, JointSpec):
        if shards is not None:
            raise ConfigError("training.shards is for a single agent: the batches of several are not cut into shards")
        check_names(cfg, observation_space)
        learnt = {name: policy_hparams(cfg, name, spec, hparams) for name in observation_space.policies}
        return build_team(cfg, spec, learnt, ctx, observation_space, partial(build_with, cfg.backend))
    if cfg.policies or cfg.env.agents != AgentsConfig():
        raise ConfigError(f"policies and env.agents are for several agents, and environment '{cfg.env_id}' has one")
    refusal = spec.supports(observation_space, action_space)
    if refusal is not None:
        raise ConfigError(f"algorithm '{cfg.algo}' does not fit environment '{cfg.env_id}': {refusal}")
    if spec.whole_teams:
        raise ConfigError(f"algorithm '{cfg.algo}' is for several agents, and environment '{cfg.env_id}' has one")
    return build_with(cfg.backend, cfg.algo, spec, hparams, ctx)


def resolve(algo: str, hparams: Any) -> tuple[AlgorithmSpec, Any]:
    """The spec of an algorithm, and the hyperparameters as the class that the spec names."""
    spec = algorithms.get(algo)
    if isinstance(spec, type):
        spec = spec_of_class(algo, spec)
    if not isinstance(spec, AlgorithmSpec):
        raise ConfigError(
            f"algorithm '{algo}' is a {type(spec).__name__}; it must be an AlgorithmSpec or a class such as one "
            "derived from rl_training.BaseAlgorithm"
        )
    if isinstance(hparams, Mapping) and is_dataclass(spec.hparams):
        return spec, check_hparams(spec.hparams, hparams, algo=algo)
    return spec, hparams


def build_with(backend: str, algo: str, spec: AlgorithmSpec, hparams: Any, ctx: BuildContext) -> Algorithm:
    """The implementation of an algorithm in `backend`."""
    build = build_jax if backend == "jax" else build_torch
    return build(algo, spec, hparams, ctx)


def build_torch(algo: str, spec: AlgorithmSpec, hparams: Any, ctx: BuildContext) -> Algorithm:
    """The torch implementation of an algorithm, or the class of a user, checked against the contract."""
    if spec.build is None:
        raise ConfigError(f"algorithm '{algo}' has no torch implementation; use backend: jax")
    build = import_own(spec.build, "algorithm") if isinstance(spec.build, str) else spec.build
    what = f"algorithm '{algo}'"
    check_call(build, what, {"ctx": ctx, "hparams": hparams})
    return checked(build(ctx, hparams), what)


def build_jax(algo: str, spec: AlgorithmSpec, hparams: Any, ctx: BuildContext) -> Algorithm:
    """The JAX implementation of an algorithm."""
    if spec.functional is None:
        raise ConfigError(f"algorithm '{algo}' has no JAX implementation; use backend: torch")
    from rl_training.jax.host import build_agent

    return build_agent(ctx, spec, hparams)


OF_ALL_POLICIES = {
    "on_policy": ("num_steps",),
    "off_policy": ("batch_size", "learning_starts", "updates_per_step", "sequence_length", "burn_in"),
}
"""Hyperparameters that are the same for all policies of a run, by the kind of their algorithms."""


def policy_hparams(cfg: TrainConfig, name: str, spec: AlgorithmSpec, hparams: Any) -> tuple[AlgorithmSpec, Any]:
    """Algorithm and hyperparameters of one policy: the run's, with what the policy has for itself on top. Another
    algorithm begins with its own defaults, and with the run's values of what is the same for all policies."""
    own = cfg.policies.get(name)
    if own is None:
        return spec, hparams
    same = own.algo is None or own.algo == cfg.algo
    if same and not own.hparams:
        return spec, hparams
    algo = cfg.algo if own.algo is None else own.algo
    base = plain_copy(hparams, "hparams")
    try:
        if not same:
            base = of_all_policies(base, spec, resolve(algo, None)[0])
        return resolve(algo, {**base, **own.hparams})
    except ConfigError as error:
        raise ConfigError(f"policies.{name}: {error}") from error


def of_all_policies(hparams: Mapping[str, Any], spec: AlgorithmSpec, other: AlgorithmSpec) -> dict[str, Any]:
    """The hyperparameters of the run's algorithm that hold for `other` beside it, too."""
    if other.kind != spec.kind:
        return {}
    known = [field.name for field in fields(other.hparams)] if is_dataclass(other.hparams) else list(hparams)
    return {name: hparams[name] for name in OF_ALL_POLICIES.get(spec.kind, ()) if name in hparams and name in known}
