"""Hyperparameters of PlaNet (Hafner et al. 2019, arXiv:1811.04551): planning in the latent space of a world model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import supports_bounded_box
from rl_training.hparams.schedules import Schedule
from rl_training.hparams.world_models import DynamicsConfig, ModelSize, Size, WorldModelHparams
from rl_training.types import ConfigError, DiscreteSpec, SpaceSpec

PAPER = ModelSize(deter=200, hidden=200, stoch=30, classes=1, units=200, layers=2, depth=8, bins=255)
"""Widths as in the paper: 200 deterministic and 30 random numbers."""


@dataclass(frozen=True)
class PlaNetConfig(WorldModelHparams):
    """A world model, and at every step a search for the actions with the largest predicted rewards."""

    __pydantic_config__ = STRICT

    size: Size = "custom"
    """Widths of all networks: custom as in `custom`, or one of Dreamer's sizes."""
    custom: ModelSize | None = PAPER
    """Widths with size: custom; those of the paper by default, none with another size."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    """The dynamics of the world model; rssm, stochastic and deterministic are the ablation of the paper. Latents of
    rssm are Gaussian unless kwargs say `latent: categorical`."""
    batch_size: int = 50
    """Sequences per update."""
    sequence_length: int = 50
    """Steps of each sequence."""
    train_ratio: float = 250.0
    """Replayed steps per env step: updates per env step = train_ratio / (batch_size * sequence_length)."""
    learning_starts: int = 1000
    """Env steps of random actions before the first update."""
    kl_representation: float = 1.0
    """Weight of the divergence that moves the posterior towards the prior; equal weights are the whole gradient."""
    free_nats: float = 3.0
    """Nats of divergence per step below which nothing is learnt from it."""
    reward_scale: float = 10.0
    """Weight of the reward loss."""
    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser, LaProp."""
    plan_horizon: int = 12
    """Steps that are planned ahead."""
    candidates: int = 1000
    """Action sequences that are tried in each iteration of the search."""
    elites: int = 100
    """Best sequences, to which the next Gaussian is fitted."""
    iterations: int = 10
    """Iterations of the search (cross-entropy method)."""
    action_noise: float = 0.3
    """Standard deviation of the noise on actions while collecting, where actions lie in -1..1."""

    def __post_init__(self) -> None:
        if self.size != "custom" and self.custom == PAPER:
            object.__setattr__(self, "custom", None)  # the default, which another size replaces
        super().__post_init__()
        for name in ("plan_horizon", "candidates", "elites", "iterations"):
            check_range(self, name, low=1)
        check_range(self, "action_noise", low=0.0)
        if self.elites > self.candidates:
            raise ConfigError(
                f"elites {self.elites} are more than the {self.candidates} candidates they are chosen from"
            )

    @property
    def dynamics_defaults(self) -> Mapping[str, Any]:
        return {**super().dynamics_defaults, "latent": "gaussian"}


def supports_planning(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Bounded Box actions, which the search varies; observations of any kind."""
    if isinstance(action_space, DiscreteSpec):
        return "it needs Box actions, which its search varies; for Discrete actions take dreamer"
    return supports_bounded_box(observation_space, action_space)


SPEC = AlgorithmSpec(
    name="planet",
    kind="off_policy",
    hparams=PlaNetConfig,
    build="rl_training.algorithms.world_models.planet:PlaNet",
    supports=supports_planning,
    summary="PlaNet: at every step a search for good actions in a learnt world model; continuous actions",
    prioritizes=False,
)
