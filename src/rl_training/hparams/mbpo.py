"""Hyperparameters of MBPO (Janner et al. 2019, arXiv:1906.08253)."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.ensembles import EnsembleConfig, check_one_step, supports_vectors
from rl_training.hparams.off_policy import WIDE_NETWORK
from rl_training.hparams.sac import SACConfig


@dataclass(frozen=True)
class MBPOConfig(SACConfig):
    """SAC that learns from short rollouts of a learnt ensemble, started at real states."""

    __pydantic_config__ = STRICT

    updates_per_step: float = 4.0
    """Updates per env step, over all environments; each one moves the model, the critics and the actor."""
    dynamics: EnsembleConfig = field(default_factory=EnsembleConfig)
    """The model: an ensemble."""
    rollout_steps: int = 1
    """Steps of a model rollout; every one of them is a transition that the policy learns from."""
    real_ratio: float = 0.1
    """Share of real transitions in what the policy learns from, 0 to 1."""
    model_learning_rate: float = 1e-3
    """Step size of the model's optimiser."""
    model_every_updates: int = 1
    """Updates of the policy per update of the model."""
    real_updates: int = 1000
    """First updates, in which the policy learns from real transitions only, while the model is still poor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_step(self.n_step)
        check_range(self, "rollout_steps", low=1)
        check_range(self, "real_ratio", low=0.0, high=1.0)
        check_range(self, "model_learning_rate", low=0.0)
        check_range(self, "model_every_updates", low=1)
        check_range(self, "real_updates", low=0)


SPEC = AlgorithmSpec(
    name="mbpo",
    kind="off_policy",
    hparams=MBPOConfig,
    build="rl_training.algorithms.world_models.mbpo:MBPO",
    supports=supports_vectors,
    summary="SAC on short rollouts of a learnt ensemble; continuous actions, observed vectors",
    network=WIDE_NETWORK,
    prioritizes=False,
)
