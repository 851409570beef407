"""What the package knows about an algorithm without importing torch or jax: its hyperparameters and how to build it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import ConfigDict

from rl_training.hparams.optimizer import OptimizerConfig, check_optimizer
from rl_training.hparams.schedules import Schedule
from rl_training.types import BoxSpec, ConfigError, DictSpec, SpaceSpec

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""pydantic settings of every config dataclass: unknown keys, "5" for 5 and NaN are refused, not repaired."""
MAX_COUNT = 10**15
"""Largest count of steps or episodes; a float holds it exactly, as schedules and readers of JSON need."""
Json = Any
"""A YAML or JSON value, passed to your own code unchanged."""

Kind = Literal["on_policy", "off_policy", "offline", "static"]
Supports = Callable[[SpaceSpec, SpaceSpec], str | None]


def supports_anything(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Any flat action space; observations of any kind."""
    if isinstance(action_space, DictSpec):
        return "Dict and Tuple action spaces are not supported; flatten the actions in a wrapper"
    return None


def supports_policy_gradient(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Discrete, Box, MultiDiscrete and MultiBinary actions; observations of any kind."""
    if isinstance(action_space, BoxSpec) and action_space.dtype.kind not in "fc":
        return (
            f"Box actions of dtype {action_space.dtype} are not supported; use a float Box, Discrete or MultiDiscrete"
        )
    return supports_anything(observation_space, action_space)


@dataclass(frozen=True)
class AlgorithmSpec:
    """One algorithm as a record: the registry's value, and what `rl algorithms` lists."""

    name: str
    kind: Kind
    hparams: type[Any]
    build: str | Callable[[Any, Any], Any] | None = None
    """Torch twin: "module:attr" or a callable, given (BuildContext, hparams) and returning an Algorithm."""
    functional: str | None = None
    """JAX twin as "module:attr"; None if there is none."""
    supports: Supports = supports_anything
    """(observation_space, action_space) -> the refusal a user reads, or None."""
    summary: str = ""
    """One line for `rl algorithms`."""
    network: Mapping[str, Any] = field(default_factory=dict)
    """The `network` section where the config says nothing else."""
    init_from: Literal["policy", "replay"] = "policy"
    """What `--init-from RUN` takes from that run: its policy, or the rows of its replay buffer, to learn from those."""
    whole_teams: bool = False
    """Learns from all agents that a policy plays at once, not from each by itself."""
    takes_late_data: bool = False
    """Whether it may learn from what earlier policies collected meanwhile (`env.collection: async`)."""
    prioritizes: bool = True
    """Whether it tells a replay buffer how wrong it was about what it drew, as a prioritised one needs to be told."""
    shards: bool = False
    """Whether the torch twin learns from batches in shards (`training.shards`), alone or with other processes."""


@dataclass(frozen=True)
class OnPolicyHparams:
    """What REINFORCE, A2C and PPO share."""

    __pydantic_config__ = STRICT

    num_steps: int = 128
    """Environment steps per env and rollout; the batch is num_steps x num_envs."""
    learning_rate: float | Schedule = 3e-4
    """Step size of the optimiser; a number or a schedule over the run's env steps."""
    gamma: float = 0.99
    """Discount factor per step, 0 to 1."""
    gae_lambda: float = 0.95
    """Bias-variance trade-off of the advantage estimate, 0 (one-step TD) to 1 (Monte Carlo)."""
    ent_coef: float | Schedule = 0.0
    """Weight of the entropy bonus in the loss."""
    vf_coef: float = 0.5
    """Weight of the value loss (half the mean squared error) in the loss."""
    max_grad_norm: float | None = 0.5
    """Gradients are scaled down to this global norm; null switches clipping off."""
    normalize_advantage: bool = True
    """Scale the advantages of each minibatch to mean 0 and standard deviation 1."""
    adam_eps: float = 1e-5
    """Adam's epsilon; 1e-5 is the value of the original PPO code, not Adam's usual 1e-8."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimiser of all networks: adam, adamw, rmsprop or your own."""
    log_std_init: float = 0.0
    """Initial log standard deviation of Gaussian policies."""
    use_sde: bool = False
    """State-dependent exploration (gSDE) for Box actions: smooth noise instead of fresh noise every step."""
    sequence_length: int | None = None
    """Steps of the sequences that networks with memory learn from; divides num_steps. Null takes whole rollouts."""
    sde_sample_freq: int = -1
    """Steps between new gSDE noise matrices; -1 draws one per episode only."""

    @property
    def has_intrinsic_value(self) -> bool:
        """Whether the critic has a second head, for the returns of an exploration bonus."""
        return False

    def critic_space(self, space: SpaceSpec) -> SpaceSpec:
        """The part of the observations that the critic sees: here all of it."""
        return space

    def __post_init__(self) -> None:
        check_range(self, "num_steps", low=1)
        check_range(self, "sequence_length", low=1)
        if self.sequence_length and self.num_steps % self.sequence_length:
            raise ConfigError(f"sequence_length {self.sequence_length} does not divide num_steps {self.num_steps}")
        check_range(self, "gamma", low=0.0, high=1.0)
        check_range(self, "gae_lambda", low=0.0, high=1.0)
        check_range(self, "vf_coef", low=0.0)
        check_range(self, "adam_eps", low=0.0, above=True)
        check_range(self, "max_grad_norm", low=0.0, above=True)
        check_range(self, "learning_rate", low=0.0)
        check_range(self, "ent_coef", low=0.0)
        check_optimizer(self)


@runtime_checkable
class CentralCritic(Protocol):
    """Hyperparameters of an algorithm whose critic may see what all agents see."""

    @property
    def sees_state(self) -> bool: ...


@runtime_checkable
class Minibatched(Protocol):
    """Hyperparameters of an algorithm that splits each rollout into minibatches."""

    num_steps: int
    num_minibatches: int


@runtime_checkable
class Lagging(Protocol):
    """Hyperparameters of an algorithm that can act with weights that are some updates old, to study what that does."""

    policy_lag: int


def check_range(
    record: Any, name: str, *, low: float | None = None, high: float | None = None, above: bool = False
) -> None:
    """Raise ConfigError if a number of a dataclass, or either end of its schedule, is out of range; None passes."""
    value = getattr(record, name)
    for number in (value.start, value.end) if isinstance(value, Schedule) else (value,):
        if number is None or not isinstance(number, int | float):
            continue
        too_low = low is not None and (number <= low if above else number < low)
        if too_low or (high is not None and number > high):
            bounds = f"{'>' if above else '>='} {low:g}" if high is None else f"between {low:g} and {high:g}"
            raise ConfigError(f"{name} must be {bounds}, not {number!r}")
