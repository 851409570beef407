"""Settings of fitted Q evaluation (Le et al. 2019, arXiv:1903.08738). It has no run of its own: see `rl ope`."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, check_range
from rl_training.hparams.offline import OfflineHparams


@dataclass(frozen=True)
class FQEConfig(OfflineHparams):
    """Critics of a fixed policy, fitted to a dataset."""

    __pydantic_config__ = STRICT

    gamma: float = 0.99  # type: ignore[misc]  # a field here, a constant where nothing bootstraps
    """Discount factor per step, 0 to below 1."""
    total_updates: int = 10_000
    """Updates of the critics."""
    tau: float = 0.05
    """How far the target critics move towards the critics at every update; `fitted` says what a smaller one costs."""
    num_critics: int = 3
    """Number of critics, each with its own targets; the spread of their estimates is reported."""
    hidden_dims: tuple[int, ...] = (64, 64)
    """Width of each hidden layer of the critics."""
    seed: int = 0
    """Root of the initial weights and of the batches."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "gamma", low=0.0, high=0.999999)
        check_range(self, "total_updates", low=1)
        check_range(self, "tau", low=0.0, high=1.0)
        check_range(self, "num_critics", low=1)

    @property
    def fitted(self) -> float:
        """How far values get from 0 to what they converge to, 0 to 1. The error of the targets falls by the factor
        1 - tau (1 - gamma) at every update: with tau 0.005 and gamma 0.99 it takes 60,000 updates to 95%.

        >>> round(FQEConfig(tau=0.005).fitted, 2), round(FQEConfig(tau=0.05).fitted, 2)
        (0.39, 0.99)
        """
        return float(1.0 - (1.0 - self.tau * (1.0 - self.gamma)) ** self.total_updates)
