"""Hyperparameters of parallelised Q-learning (Gallici et al. 2024, arXiv:2407.04811)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import supports_discrete
from rl_training.hparams.optimizer import OptimizerConfig, check_optimizer
from rl_training.hparams.schedules import Schedule

_NORMALISED = {"hidden_dims": (128, 128), "activation": "relu", "layer_norm": True}
NETWORK: dict[str, Any] = dict.fromkeys(("actor", "critic"), _NORMALISED)
"""`critic` is the Q-network; there is no actor. Its layer normalisation stands in for a target network."""


@dataclass(frozen=True)
class PQNConfig:
    """Q-learning on rollouts of many environments, without replay and without a target network."""

    __pydantic_config__ = STRICT

    num_steps: int = 64
    """Environment steps per env and rollout; the batch is num_steps x num_envs."""
    num_epochs: int = 4
    """Passes over each rollout."""
    num_minibatches: int = 16
    """Minibatches per pass; must divide num_steps x num_envs."""
    learning_rate: float | Schedule = 2.5e-4
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    gamma: float = 0.99
    """Discount factor per step, 0 to 1."""
    q_lambda: float = 0.95
    """Weight of longer returns in the targets, 0 (one-step Q-learning) to 1 (Monte Carlo)."""
    epsilon_start: float = 1.0
    """Share of random actions at the first step."""
    epsilon_end: float = 0.05
    """Share of random actions from `epsilon_steps` on."""
    epsilon_steps: int = 50_000
    """Env steps over which the share of random actions falls."""
    max_grad_norm: float | None = 10.0
    """Gradients are scaled down to this global norm; null switches clipping off."""
    adam_eps: float = 1e-8
    """Adam's epsilon."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimiser of all networks: adam, adamw, rmsprop or your own."""

    def __post_init__(self) -> None:
        for name in ("num_steps", "num_epochs", "num_minibatches", "epsilon_steps"):
            check_range(self, name, low=1)
        for name in ("gamma", "q_lambda", "epsilon_start", "epsilon_end"):
            check_range(self, name, low=0.0, high=1.0)
        check_range(self, "learning_rate", low=0.0)
        check_range(self, "max_grad_norm", low=0.0, above=True)
        check_range(self, "adam_eps", low=0.0, above=True)
        check_optimizer(self)


SPEC = AlgorithmSpec(
    name="pqn",
    kind="on_policy",
    hparams=PQNConfig,
    build=None,
    functional="rl_training.jax.algorithms.pqn:pqn",
    supports=supports_discrete,
    summary="parallelised Q-learning: layer normalisation and lambda returns, no replay, no target (backend: jax)",
    network=NETWORK,
)
