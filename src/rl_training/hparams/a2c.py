"""Hyperparameters of A2C, the synchronous form of A3C (Mnih et al. 2016, arXiv:1602.01783)."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec, OnPolicyHparams, supports_policy_gradient
from rl_training.hparams.schedules import Schedule


@dataclass(frozen=True)
class A2CConfig(OnPolicyHparams):
    """Advantage actor-critic: one gradient step per short rollout."""

    __pydantic_config__ = STRICT

    num_steps: int = 8
    """Environment steps per env and rollout; the batch is num_steps x num_envs."""
    learning_rate: float | Schedule = 7e-4
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    gae_lambda: float = 1.0
    """Bias-variance trade-off of the advantage estimate; 1 is the n-step return of the paper."""
    normalize_advantage: bool = False
    """Scale the advantages of each rollout to mean 0 and standard deviation 1."""


SPEC = AlgorithmSpec(
    name="a2c",
    kind="on_policy",
    hparams=A2CConfig,
    build="rl_training.algorithms.a2c:A2C",
    supports=supports_policy_gradient,
    summary="advantage actor-critic: one gradient step per short rollout",
    shards=True,
)
