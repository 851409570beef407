"""Hyperparameters of REINFORCE (Williams 1992) with a learnt baseline."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec, OnPolicyHparams, supports_policy_gradient
from rl_training.hparams.schedules import Schedule


@dataclass(frozen=True)
class ReinforceConfig(OnPolicyHparams):
    """Monte Carlo policy gradient."""

    __pydantic_config__ = STRICT

    num_steps: int = 512
    """Environment steps per env and rollout; the batch is num_steps x num_envs."""
    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    gae_lambda: float = 1.0
    """1 weights each action by the whole return that followed it, which is what makes this REINFORCE."""
    baseline: bool = True
    """Subtract the learnt state value from the returns; false uses the plain returns."""


SPEC = AlgorithmSpec(
    name="reinforce",
    kind="on_policy",
    hparams=ReinforceConfig,
    build="rl_training.algorithms.reinforce:Reinforce",
    functional="rl_training.jax.algorithms.reinforce:reinforce",
    supports=supports_policy_gradient,
    summary="Monte Carlo policy gradient with a learnt baseline",
)
