"""Hyperparameters of DDPG (Lillicrap et al. 2016, arXiv:1509.02971)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import WIDE_NETWORK, OffPolicyHparams, supports_bounded_box
from rl_training.hparams.schedules import Schedule


@dataclass(frozen=True)
class DDPGConfig(OffPolicyHparams):
    """Deterministic actor with one critic."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    tau: float = 0.005
    """How far the targets move towards their networks at each update."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions in training, in the -1..1 of the actor."""
    kernel: Literal["auto", "reference"] = "auto"
    """How gradients are computed: auto takes a hand-written kernel for MLPs on the CPU, reference always autograd."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "tau", low=0.0, high=1.0)
        check_range(self, "exploration_noise", low=0.0)


SPEC = AlgorithmSpec(
    name="ddpg",
    kind="off_policy",
    hparams=DDPGConfig,
    build="rl_training.algorithms.ddpg:build",
    supports=supports_bounded_box,
    summary="deep deterministic policy gradient: the plain ancestor of TD3",
    network=WIDE_NETWORK,
    shards=True,
)
