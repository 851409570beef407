"""Hyperparameters of PETS (Chua et al. 2018, arXiv:1805.12114)."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.ensembles import EnsembleConfig, check_one_step, supports_vectors
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.hparams.schedules import Schedule
from rl_training.types import ConfigError


@dataclass(frozen=True)
class PETSConfig(OffPolicyHparams):
    """Plans with the cross-entropy method over an ensemble of probabilistic networks; there is no policy network."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    gamma: float = 1.0
    """Discount factor per planned step, 0 to 1."""
    batch_size: int = 64
    """Transitions per update and member of the ensemble; every member gets its own."""
    learning_starts: int = 400
    """Env steps of random actions before the first update."""
    dynamics: EnsembleConfig = field(default_factory=EnsembleConfig)
    """The model: an ensemble."""
    plan_horizon: int = 20
    """Steps that a plan looks ahead."""
    candidates: int = 200
    """Action sequences that each iteration of the planner scores."""
    elites: int = 20
    """The best of them, to which the next iteration's Gaussian is fitted."""
    iterations: int = 3
    """Iterations of the planner per decision."""
    particles: int = 1
    """Trajectories of every member per candidate; a candidate's score is the mean over members and particles."""
    plan_std: float = 0.5
    """Standard deviation that the search starts with, around the last plan one step later; actions are -1..1."""
    plan_momentum: float = 0.1
    """Share of its previous mean and standard deviation that the planner keeps at each iteration."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions in training, in -1..1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_step(self.n_step)
        for name in ("plan_horizon", "candidates", "elites", "iterations", "particles"):
            check_range(self, name, low=1)
        check_range(self, "plan_std", low=0.0, above=True)
        check_range(self, "plan_momentum", low=0.0, high=1.0)
        check_range(self, "exploration_noise", low=0.0)
        if self.elites > self.candidates:
            raise ConfigError(f"elites {self.elites} are more than the {self.candidates} candidates they come from")


SPEC = AlgorithmSpec(
    name="pets",
    kind="off_policy",
    hparams=PETSConfig,
    build="rl_training.algorithms.world_models.pets:PETS",
    supports=supports_vectors,
    summary="planning by CEM over an ensemble of probabilistic networks; continuous actions, observed vectors",
    prioritizes=False,
)
