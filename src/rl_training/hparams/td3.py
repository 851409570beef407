"""Hyperparameters of TD3 (Fujimoto et al. 2018, arXiv:1802.09477)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import WIDE_NETWORK, OffPolicyHparams, supports_bounded_box
from rl_training.hparams.schedules import Schedule


@dataclass(frozen=True)
class TD3Config(OffPolicyHparams):
    """Deterministic actor with twin critics, smoothed targets and a delayed actor."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    tau: float = 0.005
    """How far the targets move towards their networks whenever the actor is updated."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions in training, in the -1..1 of the actor."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target actions; 0 means no noise."""
    target_noise_clip: float = 0.5
    """The noise on the target actions is clipped to +- this."""
    actor_every_updates: int = 2
    """Critic updates per update of the actor and the targets."""
    num_critics: int = 2
    """Number of critics; their minimum is used."""
    kernel: Literal["auto", "reference"] = "auto"
    """How gradients are computed: auto takes a hand-written kernel for MLPs on the CPU, reference always autograd."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_smoothed_targets(self)


def check_smoothed_targets(record: Any) -> None:
    """The ranges of TD3's own numbers, which its offline forms have too."""
    check_range(record, "tau", low=0.0, high=1.0)
    check_range(record, "exploration_noise", low=0.0)
    check_range(record, "target_noise", low=0.0)
    check_range(record, "target_noise_clip", low=0.0)
    check_range(record, "actor_every_updates", low=1)
    check_range(record, "num_critics", low=1)


SPEC = AlgorithmSpec(
    name="td3",
    kind="off_policy",
    hparams=TD3Config,
    build="rl_training.algorithms.td3:TD3",
    functional="rl_training.jax.algorithms.td3:td3",
    supports=supports_bounded_box,
    summary="twin delayed DDPG: deterministic actor, twin critics, smoothed targets",
    network=WIDE_NETWORK,
    shards=True,
)
