"""Hyperparameters of implicit Q-learning (Kostrikov et al. 2021, arXiv:2110.06169)."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import WIDE_NETWORK
from rl_training.hparams.offline import SequenceHparams, supports_offline_box


@dataclass(frozen=True)
class IQLConfig(SequenceHparams):
    """Values of the dataset's own actions, and an actor that imitates the better ones among them."""

    __pydantic_config__ = STRICT

    gamma: float = 0.99  # type: ignore[misc]  # a field here, a constant where nothing bootstraps
    """Discount factor per step, 0 to 1."""
    expectile: float = 0.7
    """Which expectile of the action values the state value is: 0.5 is their mean, towards 1 their maximum."""
    beta: float = 3.0
    """Inverse temperature of the actor's weights: 0 imitates every action alike."""
    max_weight: float = 100.0
    """Largest weight of an action."""
    tau: float = 0.005
    """How far the target critics move towards the critics at every update."""
    actor_decay: bool = True
    """Let the actor's step size fall to 0 along a cosine over the run."""
    num_critics: int = 2
    """Number of critics; their minimum is used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "gamma", low=0.0, high=1.0)
        check_range(self, "expectile", low=0.0, high=1.0)
        check_range(self, "beta", low=0.0)
        check_range(self, "max_weight", low=0.0, above=True)
        check_range(self, "tau", low=0.0, high=1.0)
        check_range(self, "num_critics", low=1)


SPEC = AlgorithmSpec(
    name="iql",
    kind="offline",
    hparams=IQLConfig,
    build="rl_training.algorithms.offline.iql:IQL",
    functional="rl_training.jax.algorithms.offline.iql:iql",
    supports=supports_offline_box,
    summary="implicit Q-learning: never asks for the value of an action that the dataset lacks",
    network=WIDE_NETWORK,
)
