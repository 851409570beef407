"""Hyperparameters of behavioural cloning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rl_training.hparams.base import STRICT, AlgorithmSpec
from rl_training.hparams.off_policy import WIDE_NETWORK, supports_bounded_box
from rl_training.hparams.offline import SequenceHparams
from rl_training.hparams.schedules import Schedule
from rl_training.types import DiscreteSpec, SpaceSpec


@dataclass(frozen=True)
class BCConfig(SequenceHparams):
    """Imitates the actions of a dataset."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser; a number or a schedule over the run's updates."""

    uses_rewards: ClassVar[bool] = False
    goes_online: ClassVar[bool] = False


def supports_cloning(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Discrete actions, and Box actions within finite bounds."""
    if isinstance(action_space, DiscreteSpec) or supports_bounded_box(observation_space, action_space) is None:
        return None
    return "it needs Discrete actions, or Box actions of a float dtype within finite bounds and without a mask"


SPEC = AlgorithmSpec(
    name="bc",
    kind="offline",
    hparams=BCConfig,
    build="rl_training.algorithms.offline.bc:BC",
    functional="rl_training.jax.algorithms.offline.bc:bc",
    supports=supports_cloning,
    summary="behavioural cloning: imitates a dataset, or the best fraction of its episodes",
    network=WIDE_NETWORK,
)
