"""Hyperparameters of PQN with value decomposition: PQN (arXiv:2407.04811) for a team, as in VDN (arXiv:1706.05296)."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec
from rl_training.hparams.off_policy import supports_discrete
from rl_training.hparams.pqn import NETWORK, PQNConfig


@dataclass(frozen=True)
class PQNVDNConfig(PQNConfig):
    """PQN for a team whose value is the sum of its agents' values."""

    __pydantic_config__ = STRICT

    num_steps: int = 32
    """Environment steps per env and rollout; the batch is num_steps x num_envs joint transitions."""
    num_minibatches: int = 8
    """Minibatches of joint transitions per pass; must divide num_steps x num_envs."""


SPEC = AlgorithmSpec(
    name="pqn_vdn",
    kind="on_policy",
    hparams=PQNVDNConfig,
    build=None,
    functional="rl_training.jax.algorithms.multi_agent.pqn_vdn:pqn_vdn",
    supports=supports_discrete,
    summary="PQN for a team: its value is the sum of its agents' values (backend: jax)",
    network=NETWORK,
    whole_teams=True,
)
