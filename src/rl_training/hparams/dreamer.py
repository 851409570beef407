"""Hyperparameters of Dreamer: DreamerV3 (Hafner et al. 2023, arXiv:2301.04104), with parts of V1 and V2 as options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.world_models import WorldModelHparams, supports_world_model
from rl_training.types import ConfigError


@dataclass(frozen=True)
class DreamerConfig(WorldModelHparams):
    """A policy learnt inside a world model. The defaults are those of the reference code of DreamerV3."""

    __pydantic_config__ = STRICT

    imagine_horizon: int = 15
    """Steps that the policy imagines from each replayed state."""
    imagine_last: int = 0
    """Imagine only from the last so many steps of each sequence; 0 imagines from all."""
    horizon: int = 333
    """Effective horizon in steps: the discount is 1 - 1 / horizon."""
    return_lambda: float = 0.95
    """Bias-variance trade-off of the returns, 0 (one step) to 1 (Monte Carlo)."""
    ent_coef: float = 3e-4
    """Weight of the entropy of the policy."""
    unimix: float = 0.01
    """Share of a uniform distribution in discrete policies, so that no action is ever impossible."""
    slow_rate: float = 0.02
    """How far the slow copy of the value network moves towards it per update."""
    slow_regularizer: float = 1.0
    """Weight of the loss that keeps the value network near its slow copy."""
    replay_critic: float = 0.3
    """Weight of the value loss on replayed steps; its gradient reaches the world model."""
    actor_gradient: Literal["reinforce", "dynamics"] = "reinforce"
    """Gradient of the policy: by log-probabilities (V3), or through the imagined states (V1; discrete actions straight
    through)."""
    value_target: Literal["current", "slow"] = "current"
    """Which value network returns are bootstrapped with."""
    return_scale: Literal["percentile", "none"] = "percentile"
    """Divide advantages by the range of the returns, from their 5th to their 95th percentile, or not at all."""
    debias_scale: bool = False
    """Correct the range for its start at 0; the reference does not, but short runs gain."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "imagine_horizon", low=1)
        check_range(self, "imagine_last", low=0)
        check_range(self, "horizon", low=1)
        for name in ("return_lambda", "unimix", "slow_rate"):
            check_range(self, name, low=0.0, high=1.0)
        for name in ("ent_coef", "slow_regularizer", "replay_critic"):
            check_range(self, name, low=0.0)
        if self.imagine_last > self.sequence_length:
            raise ConfigError(
                f"imagine_last {self.imagine_last} is more than the sequence_length of {self.sequence_length} steps"
            )

    @property
    def discount(self) -> float:
        return 1.0 - 1.0 / self.horizon


SPEC = AlgorithmSpec(
    name="dreamer",
    kind="off_policy",
    hparams=DreamerConfig,
    build="rl_training.algorithms.world_models.dreamer:Dreamer",
    functional="rl_training.jax.algorithms.world_models.dreamer:dreamer",
    supports=supports_world_model,
    summary="DreamerV3: a policy learnt inside a world model; vectors, images, discrete or continuous actions",
    prioritizes=False,
)
