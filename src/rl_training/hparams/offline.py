"""What the offline algorithms share: their hyperparameters, without anything about collecting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rl_training.hparams.base import STRICT, check_range
from rl_training.hparams.off_policy import ReplaySchedule, supports_bounded_box
from rl_training.hparams.optimizer import OptimizerConfig, check_optimizer
from rl_training.hparams.schedules import Schedule
from rl_training.types import BoxSpec, SpaceSpec


def supports_offline_box(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Real-valued actions within finite bounds; the others are referred to algorithms that learn from datasets too."""
    if not isinstance(action_space, BoxSpec) or action_space.dtype.kind != "f":
        return "it needs Box actions of a float dtype; for Discrete actions take cql, bc or dt"
    if not action_space.is_bounded:
        return "it needs finite action bounds; rescale the actions in a wrapper before recording"
    return supports_bounded_box(observation_space, action_space)


@dataclass(frozen=True)
class OfflineHparams:
    """What the algorithms that learn from a dataset share."""

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
    dataset_columns: ClassVar[tuple[str, ...]] = ()
    """What batches need beside the usual columns: next_actions, returns_to_go."""
    goes_online: ClassVar[bool] = True
    """Whether a run may go on in an environment, with batches that are half from the dataset."""
    reads_windows: ClassVar[bool] = False
    """Whether batches are windows within episodes, with the returns that followed, in place of transitions."""

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


@dataclass(frozen=True)
class SequenceHparams(OfflineHparams):
    """What the algorithms share whose networks may have memory: they then learn from sequences of a dataset."""

    __pydantic_config__ = STRICT

    sequence_length: int = 16  # type: ignore[misc]  # a field here, a constant where networks have no memory
    """Steps of the sequences that networks with memory learn from; batch_size / sequence_length of them per update."""
    burn_in: int = 0  # type: ignore[misc]
    """Steps before each sequence that only fill the memories and are not learnt from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "sequence_length", low=1)
        check_range(self, "burn_in", low=0)
