"""What the algorithms that learn from replay share: their hyperparameters, and the schedule of their updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from rl_training.hparams.base import STRICT, check_range, supports_anything
from rl_training.hparams.optimizer import OptimizerConfig, check_optimizer
from rl_training.hparams.schedules import Schedule
from rl_training.types import ACTION_MASK, BoxSpec, DictSpec, DiscreteSpec, SpaceSpec

_WIDE = {"hidden_dims": (256, 256), "activation": "relu"}
WIDE_NETWORK: dict[str, Any] = {"actor": _WIDE, "critic": _WIDE}
"""The usual network of the actor-critics that learn from replay."""


BLOCK_ENV_STEPS = 256
"""Env steps, roughly, of one block of a run with replay; logs, statistics and checkpoints come between blocks."""


def block_steps(num_envs: int) -> int:
    """Vector steps in a block."""
    return max(BLOCK_ENV_STEPS // num_envs, 1)


@dataclass(frozen=True)
class ReplaySchedule:
    """When an off-policy algorithm learns, as a function of env steps: no state to lose."""

    batch_size: int
    """Transitions per update."""
    learning_starts: int
    """Env steps of random actions before the first update."""
    updates_per_step: float | Fraction
    """Updates per env step, over all environments."""
    n_step: int = 1
    """Rewards that are summed before the target bootstraps."""

    @cached_property
    def rate(self) -> Fraction:
        """`updates_per_step` as an exact fraction, so that counts of updates are exact integers."""
        return meant_fraction(self.updates_per_step)

    def owed(self, before: int, after: int) -> int:
        """Updates due between two counts of env steps.

        >>> schedule = ReplaySchedule(batch_size=32, learning_starts=100, updates_per_step=0.1)
        >>> [schedule.owed(step, step + 4) for step in (92, 96, 100, 104, 108, 116)]
        [0, 0, 0, 0, 1, 1]
        """
        return max(self.done(after) - self.done(before), 0)

    def done(self, env_steps: int) -> int:
        """Updates due since the start, at a count of env steps."""
        return max(env_steps - self.learning_starts, 0) * self.rate.numerator // self.rate.denominator


@dataclass(frozen=True)
class SequenceOptions:
    """What an algorithm whose networks remember asks of its replay buffer."""

    length: int
    """Steps of a sampled sequence, burn-in included."""
    carry: Mapping[str, tuple[tuple[int, ...], Any]] = field(default_factory=dict)
    """Shape and dtype of what is stored of the policy's memory with every step; empty stores nothing."""


@dataclass(frozen=True)
class ReplayOptions:
    """What an algorithm asks of its replay buffer."""

    n_step: int = 1
    """Rewards that are summed before the target bootstraps."""
    gamma: float = 0.99
    """Discount factor of those sums."""
    prioritized: bool = False
    """Whether transitions with large errors are drawn more often (Schaul et al. 2016)."""
    alpha: float = 0.6
    """Exponent of the priorities."""
    beta: float | Schedule | None = None
    """Importance-sampling exponent, a number or a schedule over the run; None leaves it to the buffer."""
    sequences: SequenceOptions | None = None
    """Sequences in place of transitions, for networks with memory."""


def meant_fraction(number: float | Fraction) -> Fraction:
    """The simplest fraction whose float value is this number.

    >>> [str(meant_fraction(number)) for number in (0.1, 1 / 3, 1e-6, 2.0)]
    ['1/10', '1/3', '1/1000000', '2']
    """
    exact = Fraction(number)
    near = (exact.limit_denominator(10**digits) for digits in range(1, 18))
    return next((fraction for fraction in near if float(fraction) == float(number)), exact)


@dataclass(frozen=True)
class OffPolicyHparams:
    """What DQN, DDPG, TD3, SAC and CrossQ share."""

    __pydantic_config__ = STRICT

    learning_rate: float | Schedule = 3e-4
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    gamma: float = 0.99
    """Discount factor per step, 0 to 1."""
    batch_size: int = 256
    """Transitions per update."""
    learning_starts: int = 1000
    """Env steps of random actions before the first update."""
    updates_per_step: float = 1.0
    """Updates per env step, over all environments; 0.25 is one update in four steps."""
    n_step: int = 1
    """Rewards that are summed before the target bootstraps."""
    sequence_length: int = 16
    """Steps of the sequences that networks with memory learn from; batch_size / sequence_length of them per update."""
    burn_in: int = 0
    """Steps before each sequence that only fill the memories and are not learnt from."""
    max_grad_norm: float | None = None
    """Gradients are scaled down to this global norm; null switches clipping off."""
    adam_eps: float = 1e-8
    """Adam's epsilon."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimiser of all networks: adam, adamw, rmsprop or your own."""

    def __post_init__(self) -> None:
        check_range(self, "learning_rate", low=0.0)
        check_range(self, "gamma", low=0.0, high=1.0)
        check_range(self, "batch_size", low=1)
        check_range(self, "learning_starts", low=0)
        check_range(self, "updates_per_step", low=0.0)
        check_range(self, "n_step", low=1)
        check_range(self, "sequence_length", low=1)
        check_range(self, "burn_in", low=0)
        check_range(self, "max_grad_norm", low=0.0, above=True)
        check_range(self, "adam_eps", low=0.0, above=True)
        check_optimizer(self)

    @property
    def adam_betas(self) -> tuple[float, float]:
        """Decay of Adam's two moments."""
        return 0.9, 0.999

    @property
    def replay(self) -> ReplaySchedule:
        """Batch size and rhythm of the updates."""
        return ReplaySchedule(self.batch_size, self.learning_starts, self.updates_per_step, self.n_step)

    @property
    def replay_options(self) -> ReplayOptions:
        """What the buffer is told."""
        return ReplayOptions(n_step=self.n_step, gamma=self.gamma)


def has_mask(observation_space: SpaceSpec) -> bool:
    return isinstance(observation_space, DictSpec) and ACTION_MASK in observation_space.spaces


def supports_discrete(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """One choice out of n, masked or not; observations of any kind."""
    if isinstance(action_space, DiscreteSpec):
        return None
    return supports_anything(observation_space, action_space) or (
        "it needs Discrete actions; for Box actions take sac or td3, for MultiDiscrete ones ppo"
    )


def supports_bounded_box(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Real-valued actions within finite bounds; observations of any kind without a mask."""
    if not isinstance(action_space, BoxSpec) or action_space.dtype.kind != "f":
        return "it needs Box actions of a float dtype; for Discrete actions take dqn, for others ppo"
    if not action_space.is_bounded:
        return "it needs finite action bounds; rescale the actions in a wrapper, or take ppo"
    if has_mask(observation_space):
        return "continuous actions cannot be masked"
    return None
