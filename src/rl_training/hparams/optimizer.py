"""Which optimiser trains the networks of an algorithm: Adam, another one by name, or one of your own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

from pydantic import ConfigDict

from rl_training.types import ConfigError

ADAM = "adam"
LAPROP = "laprop"
ADAM_FIELDS = ("adam_eps", "adam_beta1")
"""Hyperparameters that only Adam has."""


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimiser of all networks of an algorithm; the step size is `learning_rate`, clipping is `max_grad_norm`."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    type: str = ADAM
    """adam, adamw, rmsprop, laprop, a registered name, or the dotted path of a torch.optim class or optax function."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the optimiser, such as weight_decay; adam has none, its settings are adam_eps and so on."""

    def __post_init__(self) -> None:
        if self.type == ADAM and self.kwargs:
            given = ", ".join(map(str, self.kwargs))
            raise ConfigError(
                f"kwargs must be empty for adam, not {given}; set adam_eps instead, or take another type such as adamw "
                "or torch.optim:Adam"
            )


def check_optimizer(hparams: Any) -> None:
    """Raise ConfigError where a setting of Adam is given together with another optimiser."""
    chosen: OptimizerConfig = hparams.optimizer
    if chosen.type == ADAM:
        return
    for item in fields(hparams):
        if item.name in ADAM_FIELDS and item.default is not MISSING and getattr(hparams, item.name) != item.default:
            raise ConfigError(
                f"{item.name} is a setting of adam, and optimizer.type is {chosen.type}; "
                f"leave {item.name} out and set optimizer.kwargs instead"
            )


@runtime_checkable
class HasOptimizer(Protocol):
    """Hyperparameters that choose an optimiser."""

    optimizer: OptimizerConfig


def optimizer_type(hparams: Any) -> str:
    """The name of the optimiser; Adam for hyperparameters that do not choose one."""
    return hparams.optimizer.type if isinstance(hparams, HasOptimizer) else ADAM
