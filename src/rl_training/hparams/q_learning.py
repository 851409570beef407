"""What DQN and value decomposition share: the rhythm of the target network, and epsilon-greedy exploration."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, check_range
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.hparams.schedules import Schedule


@dataclass(frozen=True)
class QLearningHparams(OffPolicyHparams):
    """Q-learning from replay with a target network."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    batch_size: int = 128
    """Transitions per update."""
    updates_per_step: float = 0.25
    """Updates per env step, over all environments; 0.25 is one update in four steps."""
    max_grad_norm: float | None = 10.0
    """Gradients are scaled down to this global norm; null switches clipping off."""
    tau: float = 1.0
    """How far the target network moves towards the online one when it moves; 1 copies."""
    target_every_updates: int = 125
    """Updates between two moves of the target network."""
    epsilon_start: float = 1.0
    """Share of random actions at the first step."""
    epsilon_end: float = 0.05
    """Share of random actions from `epsilon_steps` on."""
    epsilon_steps: int = 10_000
    """Env steps over which the share of random actions falls."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "tau", low=0.0, high=1.0)
        check_range(self, "target_every_updates", low=1)
        check_range(self, "epsilon_start", low=0.0, high=1.0)
        check_range(self, "epsilon_end", low=0.0, high=1.0)
        check_range(self, "epsilon_steps", low=1)
