"""Hyperparameters of conservative Q-learning (Kumar et al. 2020, arXiv:2006.04779)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.dqn import DQNConfig
from rl_training.hparams.off_policy import WIDE_NETWORK, supports_bounded_box, supports_discrete
from rl_training.hparams.offline import OfflineHparams
from rl_training.hparams.schedules import Schedule
from rl_training.types import DiscreteSpec, SpaceSpec


@dataclass(frozen=True)
class CQLConfig(OfflineHparams):
    """Critics that value actions which the dataset lacks below those that it has: SAC, or DQN for Discrete actions."""

    __pydantic_config__ = STRICT

    gamma: float = 0.99  # type: ignore[misc]  # a field here, a constant where nothing bootstraps
    """Discount factor per step, 0 to 1."""
    weight: float = 5.0
    """Weight of the conservative penalty; 0 is SAC without entropy in its targets, or double DQN."""
    num_sampled: int = 10
    """Box actions: actions per state that the penalty draws uniformly, from the policy, and from that of the next
    state; three times as many in all."""
    actor_learning_rate: float | Schedule = 1e-4
    """Box actions: step size of the actor and of the temperature."""
    tau: float = 0.005
    """How far the target critics move towards the critics at every update."""
    alpha: float | None = None
    """Box actions: temperature, the weight of the entropy in the actor's loss. Null learns it."""
    target_entropy: float | None = None
    """Entropy that a learnt temperature aims at, in nats; null is minus the number of action dimensions."""
    calibrate: Literal["online", "always", "never"] = "online"
    """Box actions: when the penalty leaves values that are below the returns in the dataset alone (Nakamoto et al.
    2023); online is where the run steps an environment."""
    epsilon: float = 0.05
    """Discrete actions: share of random actions where actions are sampled."""
    num_critics: int = 2
    """Box actions: number of critics; their minimum is used."""

    dataset_columns: ClassVar[tuple[str, ...]] = ("returns_to_go",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "gamma", low=0.0, high=1.0)
        check_range(self, "weight", low=0.0)
        check_range(self, "num_sampled", low=1)
        check_range(self, "actor_learning_rate", low=0.0)
        check_range(self, "tau", low=0.0, high=1.0)
        check_range(self, "alpha", low=0.0)
        check_range(self, "epsilon", low=0.0, high=1.0)
        check_range(self, "num_critics", low=1)


def supports_cql(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Bounded Box or Discrete actions."""
    if isinstance(action_space, DiscreteSpec):
        return supports_discrete(observation_space, action_space)
    return supports_bounded_box(observation_space, action_space)


def dqn_config(hp: CQLConfig) -> DQNConfig:
    """The double DQN inside CQL."""
    return DQNConfig(
        learning_rate=hp.learning_rate,
        gamma=hp.gamma,
        batch_size=hp.batch_size,
        learning_starts=0,
        updates_per_step=1.0,
        max_grad_norm=hp.max_grad_norm,
        adam_eps=hp.adam_eps,
        optimizer=hp.optimizer,
        tau=hp.tau,
        target_every_updates=1,
        epsilon_start=hp.epsilon,
        epsilon_end=hp.epsilon,
        kernel="reference",
    )


SPEC = AlgorithmSpec(
    name="cql",
    kind="offline",
    hparams=CQLConfig,
    build="rl_training.algorithms.offline.cql:cql",
    functional="rl_training.jax.algorithms.offline.cql:cql",
    supports=supports_cql,
    summary="conservative Q-learning: low values for actions that the dataset lacks; continuous or discrete actions",
    network=WIDE_NETWORK,
)
