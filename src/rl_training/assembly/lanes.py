"""Which lane a config runs in, and what this version refuses to run at all, before anything is built."""

from __future__ import annotations

import importlib.util

from rl_training.assembly.devices import without_device
from rl_training.assembly.environments import EnvFn
from rl_training.config.multi_agent.league import LeagueConfig
from rl_training.config.schema import TrainConfig, builtin_spec
from rl_training.logging.video import find_ffmpeg
from rl_training.registry import callbacks, import_plugins, loggers
from rl_training.types import ConfigError

ONLY_RANDOM = LeagueConfig(latest=0.0, snapshot_frequency=0)
"""The league of a game whose opponents all move at random."""


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
    """Configure jax before anything computes with it."""
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
    """host or compiled. `auto` compiles wherever that is possible; `compiled` says why it is not."""
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
    from rl_training.jax.envs import AGAINST_RANDOM, find, find_team

    if env_fn is not None:
        return "env_fn makes a Gymnasium environment"
    if (spec := builtin_spec(cfg.algo)) is not None and spec.kind == "offline":
        return f"'{cfg.algo}' is offline and steps no environment"
    settings = {
        "env.wrappers": bool(cfg.env.wrappers),
        "env.frame_stack": cfg.env.frame_stack > 1,
        "env.vectorization": cfg.env.vectorization != "sync",
        "buffer.type": cfg.buffer.type is not None,
        "logging.trace": cfg.logging.trace,
        "logging.record": cfg.logging.record,
        "logging.info_keys": bool(cfg.logging.info_keys),
    }
    for name, is_set in settings.items():
        if is_set:
            return f"{name} is for Gymnasium environments"
    if find_team(cfg.env_id) is not None:
        return against_compiling_teams(cfg)
    if find(cfg.env_id) is None:
        return f"environment '{cfg.env_id}' has no form in JAX"
    if cfg.env_id in AGAINST_RANDOM and cfg.league != ONLY_RANDOM:
        return "opponents of a compiled game move at random (league: {latest: 0, snapshot_frequency: 0} says so)"
    return None


def against_compiling_teams(cfg: TrainConfig) -> str | None:
    """Why the several agents of an environment that has a form in JAX cannot be rows of a compiled program."""
    from rl_training.jax.envs import team_refusal

    spec = builtin_spec(cfg.algo)
    if spec is not None and spec.kind != "on_policy":
        return f"'{cfg.algo}' learns from replay, which compiled programs have for single agents only"
    if cfg.env.agents.policies != "shared":
        return "env.agents.policies: compiled programs have one policy, shared by all agents"
    if cfg.env.agents.masks == "info":
        return "env.agents.masks: info is for PettingZoo environments"
    return team_refusal(cfg.env_id, cfg.env.kwargs)
