"""From `algo` and `hparams` to an algorithm that fits the spaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from rl_training.assembly.devices import resolve_device
from rl_training.build_context import BuildContext
from rl_training.config.loading import check_hparams
from rl_training.config.schema import TrainConfig
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec
from rl_training.registry import algorithms, check_call, import_own
from rl_training.seeding import Streams
from rl_training.training.contract import checked, spec_of_class
from rl_training.types import Algorithm, ConfigError, SpaceSpec


def resolve_algorithm(cfg: TrainConfig) -> tuple[AlgorithmSpec, Any]:
    """The spec behind `algo`, and the hyperparameters as the class that the spec names."""
    spec = algorithms.get(cfg.algo)
    if isinstance(spec, type):
        spec = spec_of_class(cfg.algo, spec)
    if not isinstance(spec, AlgorithmSpec):
        raise ConfigError(
            f"algorithm '{cfg.algo}' is a {type(spec).__name__}; it must be an AlgorithmSpec or a class such as one "
            "derived from rl_training.BaseAlgorithm"
        )
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
    """The algorithm, if it fits the spaces. `guard` carries the live progress of the run."""
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
        total_timesteps=cfg.training.budget,
        normalize_obs=cfg.env.normalize_obs,
        normalize_reward=cfg.env.normalize_reward,
        guard=guard,
    )
    return build_jax(cfg, spec, hparams, ctx) if cfg.backend == "jax" else build_torch(cfg, spec, hparams, ctx)


def build_torch(cfg: TrainConfig, spec: AlgorithmSpec, hparams: Any, ctx: BuildContext) -> Algorithm:
    """The torch implementation of an algorithm, or the class of a user, checked against the contract."""
    if spec.build is None:
        raise ConfigError(f"algorithm '{cfg.algo}' has no torch implementation; use backend: jax")
    build = import_own(spec.build, "algorithm") if isinstance(spec.build, str) else spec.build
    what = f"algorithm '{cfg.algo}'"
    check_call(build, what, {"ctx": ctx, "hparams": hparams})
    return checked(build(ctx, hparams), what)


def build_jax(cfg: TrainConfig, spec: AlgorithmSpec, hparams: Any, ctx: BuildContext) -> Algorithm:
    """The JAX implementation of an algorithm."""
    if spec.functional is None:
        raise ConfigError(f"algorithm '{cfg.algo}' has no JAX implementation; use backend: torch")
    from rl_training.jax.host import build_agent

    return build_agent(ctx, spec, hparams)
