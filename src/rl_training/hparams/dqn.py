"""Hyperparameters of deep Q-learning (Mnih et al. 2015) and the options that make up Rainbow (arXiv:1710.02298)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, check_range
from rl_training.hparams.off_policy import ReplayOptions, supports_discrete
from rl_training.hparams.q_learning import QLearningHparams
from rl_training.hparams.schedules import Schedule
from rl_training.types import ConfigError

NETWORK: dict[str, Any] = {name: {"hidden_dims": (128, 128), "activation": "relu"} for name in ("actor", "critic")}
"""`critic` is the Q-network; there is no actor."""


@dataclass(frozen=True)
class DQNConfig(QLearningHparams):
    """Q-learning with a target network. Every option can be combined with every other."""

    __pydantic_config__ = STRICT

    ladder_epsilon: float = 0.4
    """With env.collection async: share of random actions of the first environment (Ape-X); replaces the three above."""
    ladder_exponent: float = 7.0
    """With env.collection async: environment i of N takes ladder_epsilon^(1 + ladder_exponent i / (N - 1))."""
    double: bool = True
    """The online network chooses the next action, the target network values it (van Hasselt et al. 2016)."""
    dueling: bool = False
    """Separate state value and advantages (Wang et al. 2016)."""
    distribution: Literal["none", "c51", "quantile"] = "none"
    """Learn the distribution of returns: probabilities of fixed returns (c51) or equally likely returns (quantile)."""
    atoms: int = 51
    """Number of atoms of c51, or of quantiles."""
    value_range: tuple[float, float] = (-10.0, 10.0)
    """Smallest and largest return that c51 can represent."""
    noisy: bool = False
    """Learnt noise on the weights of the head explores, besides epsilon (Fortunato et al. 2018)."""
    noisy_std: float = 0.5
    """Initial scale of the noise of noisy layers."""
    prioritized: bool = False
    """Draw transitions with large errors more often (Schaul et al. 2016)."""
    priority_alpha: float = 0.6
    """Exponent of the priorities; 0 samples uniformly."""
    priority_beta: float | Schedule = 0.4
    """Exponent of the importance-sampling weights; 1 corrects the bias fully."""
    priority_eta: float = 0.9
    """With memory: weight of the largest error of a sequence in its priority, the rest is their mean (R2D2)."""
    stored_state: bool = False
    """With memory: sequences begin with what was remembered when they were collected, not with nothing (R2D2)."""
    kernel: Literal["auto", "reference"] = "auto"
    """How gradients are computed: auto takes a hand-written kernel for MLPs on the CPU, reference always autograd."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "ladder_epsilon", low=0.0, high=1.0)
        check_range(self, "ladder_exponent", low=0.0)
        check_range(self, "atoms", low=2)
        check_range(self, "noisy_std", low=0.0)
        check_range(self, "priority_alpha", low=0.0, high=1.0)
        check_range(self, "priority_beta", low=0.0, high=1.0)
        check_range(self, "priority_eta", low=0.0, high=1.0)
        if self.value_range[0] >= self.value_range[1]:
            raise ConfigError(f"value_range must go up, not {list(self.value_range)}")

    @property
    def replay_options(self) -> ReplayOptions:
        """What the buffer is told."""
        return ReplayOptions(self.n_step, self.gamma, self.prioritized, self.priority_alpha, self.priority_beta)


SPEC = AlgorithmSpec(
    name="dqn",
    kind="off_policy",
    hparams=DQNConfig,
    build="rl_training.algorithms.dqn:DQN",
    functional="rl_training.jax.algorithms.dqn:dqn",
    supports=supports_discrete,
    summary="deep Q-learning; double, dueling, n-step, prioritised, C51, QR and noisy as options",
    network=NETWORK,
    takes_late_data=True,
    shards=True,
)
