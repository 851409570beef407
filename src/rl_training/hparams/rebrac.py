"""Hyperparameters of ReBRAC (Tarasov et al. 2023, arXiv:2305.09836)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.offline import OfflineHparams, supports_offline_box
from rl_training.hparams.schedules import Schedule
from rl_training.hparams.td3 import check_smoothed_targets

_DEEP = {"hidden_dims": (256, 256, 256), "activation": "relu"}
NETWORK: dict[str, Any] = {"actor": _DEEP, "critic": {**_DEEP, "layer_norm": True}}
"""Three layers, normalised in the critics only."""


@dataclass(frozen=True)
class ReBRACConfig(OfflineHparams):
    """TD3 whose actor and targets are both held near the dataset."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser; a number or a schedule over the run's updates."""
    batch_size: int = 1024
    """Transitions per update."""
    gamma: float = 0.99  # type: ignore[misc]  # a field here, a constant where nothing bootstraps
    """Discount factor per step, 0 to 1."""
    actor_beta: float = 0.01
    """Weight of the actor's squared distance from the dataset's actions, summed over their dimensions."""
    critic_beta: float = 0.01
    """Weight of the next action's squared distance from that of the dataset, which targets are lowered by."""
    tau: float = 0.005
    """How far the targets move towards their networks whenever the actor is updated."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions that are sampled, in -1..1."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target actions; 0 means no noise."""
    target_noise_clip: float = 0.5
    """The noise on the target actions is clipped to +- this."""
    actor_every_updates: int = 2
    """Critic updates per update of the actor and the targets."""
    num_critics: int = 2
    """Number of critics; their minimum is used."""

    dataset_columns: ClassVar[tuple[str, ...]] = ("next_actions",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "gamma", low=0.0, high=1.0)
        check_range(self, "actor_beta", low=0.0)
        check_range(self, "critic_beta", low=0.0)
        check_smoothed_targets(self)


SPEC = AlgorithmSpec(
    name="rebrac",
    kind="offline",
    hparams=ReBRACConfig,
    build="rl_training.algorithms.offline.rebrac:ReBRAC",
    functional="rl_training.jax.algorithms.offline.rebrac:rebrac",
    supports=supports_offline_box,
    summary="TD3 on a dataset, with actor and targets held near its actions, and normalised critics",
    network=NETWORK,
)
