"""What the algorithms that predict observed vectors with an ensemble share: its choice, and the spaces they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_training.hparams.base import STRICT
from rl_training.hparams.off_policy import supports_bounded_box
from rl_training.hparams.world_models import DynamicsConfig
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec, SpaceSpec


@dataclass(frozen=True)
class EnsembleConfig(DynamicsConfig):
    """The model of algorithms that predict observed vectors: an ensemble of networks."""

    __pydantic_config__ = STRICT

    type: str = "ensemble"
    """ensemble, or a registered name or the dotted path of a class derived from it."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the ensemble: members, hidden, layers."""


def supports_vectors(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Observations that are one vector of real numbers, and bounded Box actions."""
    vector = isinstance(observation_space, BoxSpec) and len(observation_space.shape) == 1
    if not vector or not isinstance(observation_space, BoxSpec) or observation_space.dtype.kind != "f":
        return (
            "it predicts observations that are one vector of real numbers (Box of one axis); flatten Dict observations "
            "with the wrapper flatten_observation, and for images take sac"
        )
    if isinstance(action_space, DiscreteSpec):
        return "it needs Box actions; for Discrete actions take dreamer, or algo: dynamics with rssm"
    return supports_bounded_box(observation_space, action_space)


def check_one_step(n_step: int) -> None:
    """Refuse n-step targets: a model predicts single steps."""
    if n_step != 1:
        raise ConfigError(f"n_step must be 1, not {n_step}: the model learns from single transitions")
