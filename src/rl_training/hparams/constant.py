"""The constant agent: always the same action. With the random agent it shows whether a score means anything."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range


@dataclass(frozen=True)
class ConstantConfig:
    """One fixed action."""

    __pydantic_config__ = STRICT

    action: float | list[float] | None = None
    """The action: a number, or a list for vector actions; null takes 0, or the middle of a bounded Box."""
    num_steps: int = 128
    """Environment steps per env between two rounds of logging and callbacks."""

    def __post_init__(self) -> None:
        check_range(self, "num_steps", low=1)


SPEC = AlgorithmSpec(
    name="constant",
    kind="static",
    hparams=ConstantConfig,
    build="rl_training.algorithms.constant:ConstantAgent",
    summary="one fixed action; learns nothing",
)
