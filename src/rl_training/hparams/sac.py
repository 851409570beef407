"""Hyperparameters of soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import WIDE_NETWORK, OffPolicyHparams, supports_bounded_box, supports_discrete
from rl_training.types import DiscreteSpec, SpaceSpec


@dataclass(frozen=True)
class SACConfig(OffPolicyHparams):
    """Maximum-entropy actor-critic with twin critics."""

    __pydantic_config__ = STRICT

    tau: float = 0.005
    """How far the target critics move towards the critics at each update."""
    alpha: float | None = None
    """Temperature: the weight of the entropy. Null learns it, so that the entropy stays near `target_entropy`."""
    target_entropy: float | None = None
    """Entropy that a learnt temperature aims at, in nats; null is minus the number of action dimensions, for Discrete
    actions 0.89 of the largest possible. Where a mask allows k of n actions, log k / log n of that."""
    num_critics: int = 2
    """Number of critics; their minimum is used."""
    kernel: Literal["auto", "reference"] = "auto"
    """How gradients are computed: auto takes a hand-written kernel for MLPs on the CPU, reference always autograd."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "tau", low=0.0, high=1.0)
        check_range(self, "alpha", low=0.0)
        check_range(self, "num_critics", low=1)


def supports_sac(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Bounded Box or Discrete actions."""
    if isinstance(action_space, DiscreteSpec):
        return supports_discrete(observation_space, action_space)
    return supports_bounded_box(observation_space, action_space)


SPEC = AlgorithmSpec(
    name="sac",
    kind="off_policy",
    hparams=SACConfig,
    build="rl_training.algorithms.sac:SAC",
    functional="rl_training.jax.algorithms.sac:sac",
    supports=supports_sac,
    summary="soft actor-critic: maximum entropy, twin critics; continuous or discrete actions",
    network=WIDE_NETWORK,
    shards=True,
)
