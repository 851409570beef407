"""How an algorithm looks for what it has not seen: a bonus for novelty beside the rewards of the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict

from rl_training.types import ConfigError


@dataclass(frozen=True)
class ExplorationConfig:
    """A reward for observations that are new, beside the rewards of the environment."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    type: Literal["none", "rnd"] = "none"
    """none; rnd rewards observations that random network distillation predicts badly (Burda et al. 2018)."""
    coef: float = 1.0
    """Weight of the intrinsic advantages."""
    extrinsic_coef: float = 2.0
    """Weight of the advantages from the environment's own rewards."""
    discount: float = 0.99
    """Discount factor of the intrinsic rewards per step, 0 to 1."""
    episodic: bool = False
    """Whether intrinsic returns end with the episode; otherwise dying costs all the novelty that would follow."""
    hidden_dims: tuple[int, ...] = (64, 64)
    """Width of the hidden layers of the random target; the predictor has one more as wide as the last."""
    features: int = 64
    """Numbers that the target gives for an observation and the predictor has to predict."""
    learning_rate: float = 1e-4
    """Step size of the predictor's Adam."""
    train_fraction: float = 0.25
    """Share of the rows of each minibatch that the predictor learns from; fewer keep the novelty for longer."""
    obs_clip: float = 5.0
    """Normalised observations are clipped to +- this before target and predictor see them."""

    def __post_init__(self) -> None:
        positive = ("learning_rate", "train_fraction", "obs_clip", "features")
        for name in positive:
            if getattr(self, name) <= 0:
                raise ConfigError(f"exploration.{name} must be > 0, not {getattr(self, name)!r}")
        for name in ("coef", "extrinsic_coef"):
            if getattr(self, name) < 0:
                raise ConfigError(f"exploration.{name} must be >= 0, not {getattr(self, name)!r}")
        for name in ("discount", "train_fraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"exploration.{name} must be between 0 and 1, not {getattr(self, name)!r}")
        if not self.hidden_dims or any(width < 1 for width in self.hidden_dims):
            raise ConfigError(f"exploration.hidden_dims must be widths of at least 1, not {list(self.hidden_dims)}")
