"""Hyperparameters of multi-agent PPO (Yu et al. 2022, arXiv:2103.01955): IPPO with a centralised critic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, supports_policy_gradient
from rl_training.hparams.ippo import IPPOConfig


@dataclass(frozen=True)
class MAPPOConfig(IPPOConfig):
    """PPO whose critic sees what all agents see; actors see their own observations alone."""

    __pydantic_config__ = STRICT

    critic_input: Literal["own", "state", "both"] = "state"
    """What the critic sees: the agent's own observation; the state of all agents (env.agents.state) with the number of
    the agent; or both."""


SPEC = AlgorithmSpec(
    name="mappo",
    kind="on_policy",
    hparams=MAPPOConfig,
    build="rl_training.algorithms.multi_agent.ippo:IPPO",
    functional="rl_training.jax.algorithms.multi_agent.ippo:ippo",
    supports=supports_policy_gradient,
    summary="multi-agent PPO: actors see their own observations, the critic those of all agents",
)
