"""Hyperparameters of the Decision Transformer (Chen et al. 2021, arXiv:2106.01345)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.bc import supports_cloning
from rl_training.hparams.offline import OfflineHparams
from rl_training.hparams.optimizer import OptimizerConfig
from rl_training.hparams.schedules import Schedule

NETWORK: dict[str, Any] = {
    "actor": {
        "hidden_dims": (),
        "activation": "relu",
        "memory": {"type": "transformer", "size": 128, "layers": 3, "heads": 1, "window": 20},
    }
}
"""`memory.window` is the number of steps that an action is chosen from; each of them is three tokens."""


def adamw() -> OptimizerConfig:
    return OptimizerConfig("adamw", {"weight_decay": 1e-4})


@dataclass(frozen=True)
class DTConfig(OfflineHparams):
    """A transformer that continues sequences of returns-to-go, observations and actions."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 1e-4
    """Step size of the optimiser after `warmup_updates`; a number or a schedule over the run's updates."""
    batch_size: int = 64
    """Windows of `memory.window` steps per update."""
    max_grad_norm: float | None = 0.25
    """Gradients are scaled down to this global norm; null switches clipping off."""
    optimizer: OptimizerConfig = field(default_factory=adamw)
    """The optimiser of the transformer: adam, adamw, rmsprop or your own."""
    warmup_updates: int = 1000
    """Updates over which the step size rises from 0."""
    target_return: float | None = None
    """Return that is asked for when acting, in units of the environment; null is the best of the dataset."""

    uses_rewards: ClassVar[bool] = True
    goes_online: ClassVar[bool] = False
    reads_windows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "warmup_updates", low=0)


SPEC = AlgorithmSpec(
    name="dt",
    kind="offline",
    hparams=DTConfig,
    build="rl_training.algorithms.offline.dt:DecisionTransformer",
    supports=supports_cloning,
    summary="Decision Transformer: predicts the actions that lead to a given return",
    network=NETWORK,
)
