"""What the offline algorithms share: their hyperparameters, without anything about collecting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rl_training.hparams.base import STRICT, check_range
from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.hparams.optimizer import OptimizerConfig, check_optimizer
from rl_training.hparams.schedules import Schedule


@dataclass(frozen=True)
class OfflineHparams:
    """What BC, TD3+BC and IQL share."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 3e-4
    """Step size of the optimiser; a number or a schedule over the run's updates."""
    batch_size: int = 256
    """Transitions per update."""
    max_grad_norm: float | None = None
    """Gradients are scaled down to this global norm; null switches clipping off."""
    adam_eps: float = 1e-8
    """Adam's epsilon."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimiser of all networks: adam, adamw, rmsprop or your own."""

    gamma: ClassVar[float] = 0.0
    """Nothing bootstraps, unless a subclass makes this a field."""
    n_step: ClassVar[int] = 1
    sequence_length: ClassVar[int] = 1
    burn_in: ClassVar[int] = 0
    kernel: ClassVar[str] = "reference"
    uses_rewards: ClassVar[bool] = True
    """Whether the scale of rewards changes anything."""

    def __post_init__(self) -> None:
        check_range(self, "learning_rate", low=0.0)
        check_range(self, "batch_size", low=1)
        check_range(self, "max_grad_norm", low=0.0, above=True)
        check_range(self, "adam_eps", low=0.0, above=True)
        check_optimizer(self)

    @property
    def adam_betas(self) -> tuple[float, float]:
        """Decay of Adam's two moments."""
        return 0.9, 0.999

    @property
    def replay(self) -> ReplaySchedule:
        """Batch size; the rhythm means nothing where no environment is stepped."""
        return ReplaySchedule(self.batch_size, 0, 1.0)
