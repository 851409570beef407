"""The random agent: uniform actions, the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range


@dataclass(frozen=True)
class RandomConfig:
    """Uniform over the action space (respecting an action mask)."""

    __pydantic_config__ = STRICT

    num_steps: int = 128
    """Environment steps per env between two rounds of logging and callbacks."""

    def __post_init__(self) -> None:
        check_range(self, "num_steps", low=1)


SPEC = AlgorithmSpec(
    name="random",
    kind="static",
    hparams=RandomConfig,
    build="rl_training.algorithms.random:RandomAgent",
    summary="uniform random actions; learns nothing",
)
