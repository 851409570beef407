"""What the algorithms that learn a world model share: sizes of networks, dynamics, losses of the model, optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from rl_training.hparams.base import STRICT, check_range
from rl_training.hparams.off_policy import (
    ReplayOptions,
    ReplaySchedule,
    has_mask,
    supports_bounded_box,
)
from rl_training.hparams.schedules import Schedule
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec, SpaceSpec


@dataclass(frozen=True)
class ModelSize:
    """Widths of all networks of a world model."""

    __pydantic_config__ = STRICT

    deter: int = 512
    """Size of the deterministic recurrent state."""
    hidden: int = 64
    """Width of the layers inside the dynamics."""
    stoch: int = 32
    """Number of random latents."""
    classes: int = 4
    """Classes of each latent, where latents are categorical."""
    units: int = 64
    """Width of the layers of encoder, decoder and heads."""
    layers: int = 3
    """Layers of encoder, decoder, policy and value; reward and continue heads have one."""
    depth: int = 4
    """Channels of the image encoder and decoder, as a multiple of (2, 3, 4, 4)."""
    bins: int = 255
    """Bins over which rewards and values are predicted; odd, so that 0 is one of them."""

    def __post_init__(self) -> None:
        for item in fields(self):
            check_range(self, item.name, low=1)
        if self.bins < 3 or self.bins % 2 == 0:
            raise ConfigError(f"bins must be an odd number of at least 3, not {self.bins}")


def _published(factor: int) -> ModelSize:
    """A size of the reference code; size1m has the factor 1."""
    return ModelSize(512 * factor, 64 * factor, 32, 4 * factor, 64 * factor, 3, 4 * factor)


SIZES: Mapping[str, ModelSize] = {
    "mini": ModelSize(deter=64, hidden=64, stoch=8, classes=8, units=64, layers=2, depth=4, bins=63),
    "tiny": ModelSize(deter=128, hidden=128, stoch=16, classes=8, units=128, layers=3, depth=8, bins=127),
    "size1m": _published(1),
    "size12m": _published(4),
    "size25m": _published(6),
    "size50m": _published(8),
    "size100m": _published(12),
    "size200m": _published(16),
    "size400m": _published(24),
}
"""The published sizes of DreamerV3 by their number of parameters with image parts, and two for learning on a CPU."""

Size = Literal["mini", "tiny", "size1m", "size12m", "size25m", "size50m", "size100m", "size200m", "size400m", "custom"]


BLOCKS = 8
"""Blocks of the recurrent matrices in every published size."""
SMALLEST_BLOCKED = 256
"""Below this size of the deterministic state one dense product is faster than blocks."""


HORIZONS = (1, 5, 15)
"""Steps ahead at which the error of open-loop predictions is measured."""


class RSSMSizes(NamedTuple):
    """Sizes of an RSSM: deterministic state, hidden layers, latents, classes of each, blocks of the core."""

    deter: int
    hidden: int
    stoch: int
    classes: int
    blocks: int


def check_sizes(**sizes: Any) -> None:
    """ConfigError where one of the sizes of dynamics is no whole number of at least 1."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"hparams.dynamics.kwargs.{name} must be a whole number, not {value!r}")
        if value < 1:
            raise ConfigError(f"hparams.dynamics.kwargs.{name} must be at least 1, not {value}")


def check_blocks(deter: int, blocks: int) -> None:
    """ConfigError where the deterministic state cannot be divided into its blocks."""
    check_sizes(deter=deter, blocks=blocks)
    if deter % blocks:
        raise ConfigError(
            f"hparams.dynamics.kwargs.deter {deter} is not divisible into {blocks} blocks; change one of the two"
        )


def usual_blocks(deter: int) -> int:
    """Blocks of a core whose deterministic state has this size."""
    check_sizes(deter=deter)
    return BLOCKS if deter >= SMALLEST_BLOCKED else 1


def check_rssm(sizes: RSSMSizes, latent: str, unimix: float) -> None:
    """ConfigError where the sizes of an RSSM do not fit together."""
    check_sizes(**sizes._asdict())
    check_blocks(sizes.deter, sizes.blocks)
    if isinstance(unimix, bool) or not isinstance(unimix, int | float) or not 0.0 <= unimix < 1.0:
        raise ConfigError(f"hparams.dynamics.kwargs.unimix must be at least 0 and less than 1, not {unimix!r}")
    if latent not in ("categorical", "gaussian"):
        raise ConfigError(f"hparams.dynamics.kwargs.latent must be categorical or gaussian, not {latent!r}")
    if latent == "categorical" and sizes.classes > 256:
        raise ConfigError(f"hparams.dynamics.kwargs.classes must be at most 256, not {sizes.classes}")


@dataclass(frozen=True)
class DynamicsConfig:
    """How the state of the world model moves: a part that is exchanged by name."""

    __pydantic_config__ = STRICT

    type: str = "rssm"
    """rssm, stochastic, deterministic, a registered name, or the dotted path of a class derived from Dynamics."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the dynamics; they come before those of hparams.size. For rssm for instance `latent: gaussian`."""


@dataclass(frozen=True)
class WorldModelHparams:
    """What Dreamer and PlaNet share."""

    __pydantic_config__ = STRICT

    size: Size = "size1m"
    """Widths of all networks: mini and tiny for a CPU, size1m to size400m as published, custom as in `custom`."""
    custom: ModelSize | None = None
    """Widths with size: custom."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    """The dynamics of the world model."""
    batch_size: int = 16
    """Sequences per update."""
    sequence_length: int = 64
    """Steps of each sequence."""
    train_ratio: float = 512.0
    """Replayed steps per env step: updates per env step = train_ratio / (batch_size * sequence_length)."""
    learning_starts: int = 1024
    """Env steps before the first update."""
    context: Literal["stored", "zero"] = "stored"
    """State that a sequence begins with where it does not begin an episode: as it was when the step was taken, or 0."""
    kl_dynamics: float = 1.0
    """Weight of the divergence that moves the prior towards the posterior; V2 has 0.8 here, 0.2 below."""
    kl_representation: float = 0.1
    """Weight of the divergence that moves the posterior towards the prior."""
    free_nats: float = 1.0
    """Nats of divergence per step below which nothing is learnt from it."""
    reward_scale: float = 1.0
    """Weight of the reward loss; PlaNet's is 10."""
    learning_rate: float | Schedule = 4e-5
    """Step size of the optimiser, LaProp."""
    warmup_updates: int = 1000
    """Updates over which the step size rises linearly from 0."""
    agc: float = 0.3
    """Largest norm of a tensor's gradient, relative to the norm of the tensor (adaptive gradient clipping)."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "sequence_length"):
            check_range(self, name, low=1)
        for name in ("learning_starts", "kl_dynamics", "kl_representation", "free_nats", "reward_scale"):
            check_range(self, name, low=0)
        for name in ("train_ratio", "learning_rate", "warmup_updates"):
            check_range(self, name, low=0)
        check_range(self, "agc", low=0.0, above=True)
        if (self.size == "custom") != (self.custom is not None):
            raise ConfigError("size: custom and the section `custom` belong together; give both or neither")

    @property
    def widths(self) -> ModelSize:
        """The widths that `size` stands for."""
        return self.custom if self.custom is not None else SIZES[self.size]

    @property
    def dynamics_defaults(self) -> Mapping[str, Any]:
        """Arguments of the dynamics that `dynamics.kwargs` does not give; each class gets those that it takes."""
        size = self.widths
        return {"deter": size.deter, "hidden": size.hidden, "stoch": size.stoch, "classes": size.classes}

    @property
    def replay(self) -> ReplaySchedule:
        """Batch size and rhythm of the updates."""
        per_step = self.train_ratio / (self.batch_size * self.sequence_length)
        return ReplaySchedule(self.batch_size, self.learning_starts, per_step)

    @property
    def replay_options(self) -> ReplayOptions:
        """What the buffer is told; the sequences come from the algorithm, which knows its state."""
        return ReplayOptions()


def supports_world_model(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
    """Bounded Box or Discrete actions without masks; observations of any kind."""
    if has_mask(observation_space):
        return "a world model cannot imagine which actions a mask would allow"
    if isinstance(action_space, DiscreteSpec):
        return None
    if not isinstance(action_space, BoxSpec) or action_space.dtype.kind != "f":
        return "it needs Discrete actions or Box actions of a float dtype; for others take ppo"
    return supports_bounded_box(observation_space, action_space)
