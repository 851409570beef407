"""Hyperparameters of TD3+BC (Fujimoto and Gu 2021, arXiv:2106.06860)."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import WIDE_NETWORK
from rl_training.hparams.offline import SequenceHparams, supports_offline_box
from rl_training.hparams.td3 import check_smoothed_targets


@dataclass(frozen=True)
class TD3BCConfig(SequenceHparams):
    """TD3 whose actor also imitates the dataset. The paper scales states: set `env.normalize_obs: true`."""

    __pydantic_config__ = STRICT

    gamma: float = 0.99  # type: ignore[misc]  # a field here, a constant where nothing bootstraps
    """Discount factor per step, 0 to 1."""
    alpha: float = 2.5
    """Weight of the value against imitation; the value is divided by its mean magnitude first."""
    tau: float = 0.005
    """How far the targets move towards their networks whenever the actor is updated."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions that are sampled (`rl eval --stochastic`), in -1..1."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target actions; 0 means no noise."""
    target_noise_clip: float = 0.5
    """The noise on the target actions is clipped to +- this."""
    actor_every_updates: int = 2
    """Critic updates per update of the actor and the targets."""
    num_critics: int = 2
    """Number of critics; their minimum is used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "gamma", low=0.0, high=1.0)
        check_range(self, "alpha", low=0.0, above=True)
        check_smoothed_targets(self)


SPEC = AlgorithmSpec(
    name="td3_bc",
    kind="offline",
    hparams=TD3BCConfig,
    build="rl_training.algorithms.offline.td3_bc:TD3BC",
    functional="rl_training.jax.algorithms.offline.td3_bc:td3_bc",
    supports=supports_offline_box,
    summary="TD3 on a dataset, with an actor that also imitates it",
    network=WIDE_NETWORK,
)
