"""Hyperparameters of PPO (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, OnPolicyHparams, check_range, supports_policy_gradient
from rl_training.hparams.exploration import ExplorationConfig
from rl_training.hparams.schedules import Schedule


@dataclass(frozen=True)
class PPOConfig(OnPolicyHparams):
    """Clipped-surrogate policy optimisation."""

    __pydantic_config__ = STRICT

    num_epochs: int = 4
    """Passes over each rollout."""
    num_minibatches: int = 4
    """Minibatches per pass; must not exceed num_steps x num_envs."""
    clip_coef: float | Schedule = 0.2
    """The probability ratio is clipped to 1 +- this."""
    clip_vf: float | None = None
    """Value predictions may move this far from the old ones before their loss is clipped; null does not clip."""
    target_kl: float | None = None
    """Stop the passes over a rollout when the estimated KL exceeds 1.5 times this; null never stops."""
    grad_accumulation: int = 1
    """Minibatches whose gradients are averaged into one optimiser step."""
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    """A bonus for new observations: none, or rnd."""
    kernel: Literal["auto", "reference"] = "auto"
    """How gradients are computed: auto takes a hand-written kernel for MLPs on the CPU, reference always autograd."""

    @property
    def has_intrinsic_value(self) -> bool:
        return self.exploration.type != "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "num_epochs", low=1)
        check_range(self, "num_minibatches", low=1)
        check_range(self, "grad_accumulation", low=1)
        check_range(self, "clip_coef", low=0.0, above=True)
        check_range(self, "clip_vf", low=0.0, above=True)
        check_range(self, "target_kl", low=0.0, above=True)


SPEC = AlgorithmSpec(
    name="ppo",
    kind="on_policy",
    hparams=PPOConfig,
    build="rl_training.algorithms.ppo:PPO",
    functional="rl_training.jax.algorithms.ppo:ppo",
    supports=supports_policy_gradient,
    summary="proximal policy optimisation: clipped surrogate, several epochs per rollout",
    shards=True,
)
