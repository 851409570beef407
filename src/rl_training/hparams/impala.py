"""Hyperparameters of IMPALA, an actor-critic for rollouts of earlier policies (Espeholt et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, OnPolicyHparams, check_range, supports_policy_gradient
from rl_training.hparams.schedules import Schedule
from rl_training.types import ConfigError


@dataclass(frozen=True)
class ImpalaConfig(OnPolicyHparams):
    """Actor-critic with V-trace: one gradient step per rollout, which an earlier policy may have collected."""

    __pydantic_config__ = STRICT

    num_steps: int = 20
    """Environment steps per env and rollout; the batch is num_steps x num_envs."""
    learning_rate: float | Schedule = 6e-4
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    gae_lambda: float = 1.0
    """Factor of the trace coefficients, 0 (one-step targets) to 1 (V-trace as published)."""
    ent_coef: float | Schedule = 0.01
    """Weight of the entropy bonus in the loss."""
    normalize_advantage: bool = False
    """Scale the advantages of each rollout to mean 0 and standard deviation 1."""
    correction: Literal["vtrace", "none"] = "vtrace"
    """vtrace weights by the ratio of the learning to the acting policy; none takes every ratio for 1."""
    rho_clip: float = 1.0
    """Upper bound of the ratio in the temporal differences; it decides which policy's values are learnt."""
    c_clip: float = 1.0
    """Upper bound of the ratio in the trace coefficients, at most rho_clip; larger ones reach further back."""
    pg_rho_clip: float = 1.0
    """Upper bound of the ratio in the policy gradient."""
    policy_lag: int = 0
    """Updates by which the acting policy is behind the learning one, with local collection; to study the correction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rho_clip", "c_clip", "pg_rho_clip"):
            check_range(self, name, low=0.0, above=True)
        check_range(self, "policy_lag", low=0, high=1024)
        if self.c_clip > self.rho_clip:
            raise ConfigError(f"c_clip {self.c_clip:g} is more than rho_clip {self.rho_clip:g}")


SPEC = AlgorithmSpec(
    name="impala",
    kind="on_policy",
    hparams=ImpalaConfig,
    build="rl_training.algorithms.impala:Impala",
    supports=supports_policy_gradient,
    summary="actor-critic with V-trace, for rollouts that earlier policies collected",
    takes_late_data=True,
)
