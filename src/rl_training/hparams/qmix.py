"""Hyperparameters of QMIX (Rashid et al. 2018, arXiv:1803.11485)."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.dqn import NETWORK
from rl_training.hparams.off_policy import supports_discrete
from rl_training.hparams.vdn import VDNConfig


@dataclass(frozen=True)
class QMIXConfig(VDNConfig):
    """Q-learning for a team whose value grows with each agent's value, in a way that depends on the state."""

    __pydantic_config__ = STRICT

    mixing_dim: int = 32
    """Width of the hidden layer between the agents' values and the team's."""
    hypernet_dim: int = 64
    """Width of the hidden layers from the state to the weights of the mixer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "mixing_dim", low=1)
        check_range(self, "hypernet_dim", low=1)

    @property
    def sees_state(self) -> bool:
        return True


SPEC = AlgorithmSpec(
    name="qmix",
    kind="off_policy",
    hparams=QMIXConfig,
    build="rl_training.algorithms.multi_agent.value_mixing:ValueMixing",
    supports=supports_discrete,
    summary="monotonic value mixing: the value of a team from its agents' values and the state",
    network=NETWORK,
    whole_teams=True,
)
