"""Hyperparameters of CrossQ (Bhatt et al. 2024, arXiv:1902.05605)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import OffPolicyHparams, supports_bounded_box
from rl_training.hparams.schedules import Schedule

NETWORK: dict[str, Any] = {
    "actor": {"hidden_dims": (256, 256), "activation": "relu"},
    "critic": {"hidden_dims": (512, 512), "activation": "relu"},
}
"""The paper's critics are 2048 wide, which needs a GPU."""


@dataclass(frozen=True)
class CrossQConfig(OffPolicyHparams):
    """SAC without target networks: batch-normalised critics see this and the next state in one batch."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    adam_beta1: float = 0.5
    """Decay of Adam's first moment: little momentum, since the targets move at once."""
    alpha: float | None = None
    """Temperature: the weight of the entropy. Null learns it, so that the entropy stays near `target_entropy`."""
    target_entropy: float | None = None
    """Entropy that a learnt temperature aims at, in nats; null is minus the number of action dimensions."""
    num_critics: int = 2
    """Number of critics; their minimum is used."""
    actor_every_updates: int = 3
    """Critic updates per update of the actor and the temperature."""
    norm_momentum: float = 0.01
    """How far the running statistics of the normalisation move with each batch."""
    renorm_after_updates: int = 100_000
    """From this update on batch statistics are tied to the running ones (batch renormalisation)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "adam_beta1", low=0.0, high=1.0)
        check_range(self, "alpha", low=0.0)
        check_range(self, "num_critics", low=1)
        check_range(self, "actor_every_updates", low=1)
        check_range(self, "norm_momentum", low=0.0, high=1.0)
        check_range(self, "renorm_after_updates", low=0)

    @property
    def adam_betas(self) -> tuple[float, float]:
        return self.adam_beta1, 0.999


SPEC = AlgorithmSpec(
    name="crossq",
    kind="off_policy",
    hparams=CrossQConfig,
    build="rl_training.algorithms.crossq:CrossQ",
    supports=supports_bounded_box,
    summary="SAC with batch-normalised critics and no target networks: few samples",
    network=NETWORK,
)
