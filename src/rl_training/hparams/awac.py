"""Hyperparameters of advantage-weighted actor-critic (Nair et al. 2020, arXiv:2006.09359)."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import WIDE_NETWORK
from rl_training.hparams.offline import SequenceHparams, supports_offline_box


@dataclass(frozen=True)
class AWACConfig(SequenceHparams):
    """An actor that imitates the dataset's actions, weighted by how much better than its own they are."""

    __pydantic_config__ = STRICT

    gamma: float = 0.99  # type: ignore[misc]  # a field here, a constant where nothing bootstraps
    """Discount factor per step, 0 to 1."""
    temperature: float = 1.0
    """What advantages are divided by, in units of the return; smaller imitates fewer actions, more strongly."""
    max_weight: float = 100.0
    """Largest weight of an action."""
    tau: float = 0.005
    """How far the target critics move towards the critics at every update."""
    num_critics: int = 2
    """Number of critics; their minimum is used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "gamma", low=0.0, high=1.0)
        check_range(self, "temperature", low=0.0, above=True)
        check_range(self, "max_weight", low=0.0, above=True)
        check_range(self, "tau", low=0.0, high=1.0)
        check_range(self, "num_critics", low=1)


SPEC = AlgorithmSpec(
    name="awac",
    kind="offline",
    hparams=AWACConfig,
    build="rl_training.algorithms.offline.awac:AWAC",
    functional="rl_training.jax.algorithms.offline.awac:awac",
    supports=supports_offline_box,
    summary="advantage-weighted actor-critic: imitates the better actions of a dataset, values its own",
    network=WIDE_NETWORK,
)
