"""Hyperparameters of value decomposition networks (Sunehag et al. 2018, arXiv:1706.05296)."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec
from rl_training.hparams.dqn import NETWORK
from rl_training.hparams.off_policy import supports_discrete
from rl_training.hparams.q_learning import QLearningHparams
from rl_training.hparams.schedules import Schedule


@dataclass(frozen=True)
class VDNConfig(QLearningHparams):
    """Q-learning for a team whose value is the sum of its agents' values."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 5e-4
    batch_size: int = 128
    """Joint transitions per update."""
    tau: float = 1.0
    """How far the target networks move towards the online ones when they move; 1 copies."""
    target_every_updates: int = 200
    """Updates between two moves of the target networks."""
    epsilon_steps: int = 50_000
    double: bool = True
    """The online network chooses the next actions, the target network values them (van Hasselt et al. 2016)."""
    dueling: bool = False
    """Separate state value and advantages (Wang et al. 2016)."""
    stored_state: bool = False
    """With memory: sequences begin with what was remembered when they were collected, not with nothing (R2D2)."""

    @property
    def sees_state(self) -> bool:
        """Whether the mixer is shown the state of all agents."""
        return False


SPEC = AlgorithmSpec(
    name="vdn",
    kind="off_policy",
    hparams=VDNConfig,
    build="rl_training.algorithms.multi_agent.value_mixing:ValueMixing",
    supports=supports_discrete,
    summary="value decomposition: the value of a team is the sum of its agents' values",
    network=NETWORK,
    whole_teams=True,
)
