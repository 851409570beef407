"""The section `env`: how the environment is built, wrapped, vectorised and collected from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rl_training.config.multi_agent.agents import AgentsConfig
from rl_training.config.sections.base import MAX_PARTS, SECTION
from rl_training.hparams.base import MAX_COUNT, Json, check_range
from rl_training.types import ConfigError


@dataclass(frozen=True)
class WrapperConfig:
    """One wrapper of the environment stack, innermost first."""

    __pydantic_config__ = SECTION

    name: str
    """Registered name (see `rl envs`) or dotted path "package.module:Name"."""
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    """Keyword arguments of the wrapper."""
    train_only: bool = False
    """Not used in evaluation (reward shaping, exploration bonuses)."""


@dataclass(frozen=True)
class EnvConfig:
    """How the environment is built, wrapped and vectorised."""

    __pydantic_config__ = SECTION

    num_envs: int = 4
    """Number of parallel environments."""
    vectorization: Literal["sync", "async", "native"] = "sync"
    """sync steps them in this process; async in worker processes; native uses the suite's own vector environment."""
    num_workers: int | None = None
    """Worker processes for async, each with several environments, or threads of ALE's native vector; null takes one per
    core, at most num_envs."""
    step_timeout: float = 60.0
    """Seconds that a worker may take for one step before it counts as hung (async)."""
    worker_restart: bool = False
    """Restart a dead or hung worker and mark its episodes truncated, instead of ending the run (async)."""
    wrappers: tuple[WrapperConfig, ...] = ()
    """Wrapper stack, innermost first; a plain name is short for `{name: ...}`."""
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    """Keyword arguments of the environment itself (`gymnasium.make(env_id, **kwargs)`)."""
    max_episode_steps: int | None = None
    """Truncate episodes after this many steps of the environment itself (frames of an Atari game); null keeps its own
    limit."""
    normalize_obs: bool = False
    """Scale observations by running mean and standard deviation; the statistics live in the policy."""
    normalize_reward: bool = False
    """Scale rewards by the running standard deviation of the discounted return; logs keep raw rewards."""
    frame_stack: int = 1
    """Stack the last n observations along a new first axis; 1 does not stack."""
    overlap: bool = False
    """Collect the next rollout (or block of 256 env steps, with replay) while the learner works on this one, with the
    policy from before this update; pays where environments are as slow as learning (torch)."""
    collector: Literal["local", "ray"] = "local"
    """local steps the environments here; ray in runners on a Ray cluster, where each environment acts by itself with a
    random stream of its own (torch)."""
    runners: int | None = None
    """Runners on the cluster, each with a part of the environments; a run is the same with any number of them. Null
    takes one per CPU of the cluster, at most num_envs (ray)."""
    collection: Literal["sync", "async"] = "sync"
    """sync waits for every runner; async keeps runners at work while the learner learns, with weights that are some
    updates old, and cannot be repeated bit for bit (ray; impala and dqn)."""
    max_policy_lag: int | None = None
    """Age in updates of the weights behind a rollout, from which on it is dropped; null keeps all (async; impala)."""
    agents: AgentsConfig = field(default_factory=AgentsConfig)
    """Environments with several agents: who plays whom, for which reward, and what critics see."""

    def __post_init__(self) -> None:
        check_range(self, "num_envs", low=1, high=MAX_PARTS)
        check_range(self, "runners", low=1, high=MAX_PARTS)
        check_range(self, "max_policy_lag", low=0, high=MAX_COUNT)
        self._check_collector()
        check_range(self, "num_workers", low=1, high=MAX_PARTS)
        check_range(self, "max_episode_steps", low=1, high=MAX_COUNT)
        check_range(self, "frame_stack", low=1, high=MAX_PARTS)
        check_range(self, "step_timeout", low=0.0, above=True)

    def _check_collector(self) -> None:
        """Refuse combinations that mean nothing."""
        if self.collector == "local":
            only_ray = {"runners": self.runners, "max_policy_lag": self.max_policy_lag}
            used = [name for name, value in only_ray.items() if value is not None]
            if self.collection == "async":
                used.append("collection")
            if used:
                raise ConfigError(f"{used[0]} is for runners: it needs env.collector: ray")
            return
        if self.overlap:
            raise ConfigError(
                "overlap cannot be combined with env.collector: ray; with env.collection: async runners collect while "
                "the learner learns"
            )
        if self.vectorization != "sync":
            raise ConfigError(
                f"vectorization {self.vectorization} cannot be combined with env.collector: ray, whose runners step "
                "their environments themselves; use env.vectorization: sync"
            )
        if self.runners is not None and self.runners > self.num_envs:
            raise ConfigError(f"runners {self.runners} is more than env.num_envs {self.num_envs}")
