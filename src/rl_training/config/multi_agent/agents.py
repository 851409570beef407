"""The sections of a config that are about environments with several agents, and policies that play them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rl_training.hparams.base import STRICT, Json
from rl_training.types import ConfigError

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What policies and teams may be called: their names are parts of keys and metrics."""


@dataclass(frozen=True)
class AgentsConfig:
    """Environments with several agents: who plays whom, for which reward, and what critics see."""

    __pydantic_config__ = STRICT

    policies: Literal["shared", "separate"] | Mapping[str, tuple[str, ...]] = "shared"
    """shared: one policy plays all agents; separate: each its own; or names of policies with patterns of agents,
    `{hunters: [adversary_*], prey: [agent_*]}`."""
    ids: Literal["one_hot", "none"] = "one_hot"
    """Whether a policy that plays several agents is told which of them it plays."""
    reward: Literal["own", "team_mean", "team_sum"] = "own"
    """What an agent learns from: its own reward, or the mean or sum over its team. Logs and scores have own rewards."""
    teams: Mapping[str, tuple[str, ...]] | None = None
    """Names of teams with patterns of agents; null: the agents of each named policy are a team, otherwise all are."""
    state: Literal["auto", "env", "concat", "none"] = "auto"
    """What a centralised critic sees: the environment's own state, all observations behind one another, or auto: the
    former where there is one. none where no policy asks for it."""
    masks: Literal["observation", "info"] = "observation"
    """Where an environment puts action masks: under the key action_mask of its observations, or of its infos."""
    score: str | None = None
    """Policy whose agents' mean return is the return of an episode in logs, evaluations and comparisons; null takes all
    agents."""

    def __post_init__(self) -> None:
        named = {} if isinstance(self.policies, str) else self.policies
        for what, names in (("policies", named), ("teams", self.teams or {})):
            for name in names:
                if not NAME.fullmatch(name):
                    raise ConfigError(f"env.agents.{what}: '{name[:80]}' is no name; use letters, digits, _ . and -")
        if not isinstance(self.policies, str) and not named:
            raise ConfigError("env.agents.policies names no policy")
        if self.score is not None and named and self.score not in named:
            raise ConfigError(f"env.agents.score '{self.score}' is none of the policies ({', '.join(named)})")


@dataclass(frozen=True)
class PolicyConfig:
    """What one of several policies has for itself; the rest is that of the run."""

    __pydantic_config__ = STRICT

    algo: str | None = None
    """Algorithm that this policy learns with; null takes that of the run."""
    hparams: Mapping[str, Json] = field(default_factory=dict)
    """Hyperparameters that differ from those of the run, or from the defaults of another algorithm."""
