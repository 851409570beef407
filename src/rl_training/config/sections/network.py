"""The section `network`: encoders, layers and memories of actor and critic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_training.config.sections.base import MAX_PARTS, SECTION
from rl_training.hparams.base import Json, check_range
from rl_training.types import ConfigError

Activation = Literal["tanh", "relu", "elu", "gelu", "silu", "leaky_relu", "identity"]


@dataclass(frozen=True)
class EncoderConfig:
    """Encoders of observations; a plain name stands for `{type: ...}`."""

    __pydantic_config__ = SECTION

    type: Literal["auto", "mlp", "nature", "small", "impala", "grid"] = "auto"
    """auto takes convolutions for images (nature from 36 pixels on, else grid) and flattens the rest; mlp flattens
    images too, codes one-hot; nature (Mnih et al. 2015), small (Mnih et al. 2013), impala (residual), grid (3x3, for
    few cells)."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Encoders of single observation keys, where they differ: `{camera: impala, map: mlp}`."""
    features: int | None = None
    """Width of the linear layer behind the convolutions; null takes the encoder's own (nature 512, small 256)."""
    channels: Literal["auto", "first", "last"] = "auto"
    """Which axis of an image holds its channels; auto decides by its shape."""
    random_shift: int = 0
    """Pixels by which algorithms that learn from replay move images at random (DrQ); 0 does not."""

    def __post_init__(self) -> None:
        check_range(self, "features", low=1, high=MAX_PARTS)
        check_range(self, "random_shift", low=0, high=MAX_PARTS)


@dataclass(frozen=True)
class MemoryConfig:
    """Memory behind the layers; a plain name stands for `{type: ...}`."""

    __pydantic_config__ = SECTION

    type: Literal["none", "gru", "lstm", "transformer"] = "none"
    """none; gru and lstm are recurrent; transformer attends to the last `window` steps."""
    size: int = 64
    """Width of the features that the memory gives."""
    layers: int = 1
    """Layers of the transformer."""
    heads: int = 2
    """Attention heads of the transformer; they divide `size`."""
    window: int = 32
    """Steps of the episode that a layer of the transformer looks at, the present one among them."""
    gating: bool = False
    """Gate the layers of the transformer as GTrXL does (Parisotto et al. 2019)."""

    def __post_init__(self) -> None:
        for name in ("size", "layers", "heads", "window"):
            check_range(self, name, low=1, high=MAX_PARTS)
        if self.type == "transformer" and self.size % self.heads:
            raise ConfigError(f"memory.size {self.size} is not a multiple of memory.heads {self.heads}")


@dataclass(frozen=True)
class BackboneConfig:
    """A network body: from an observation to features."""

    __pydantic_config__ = SECTION

    type: str = "mlp"
    """mlp, cnn, a shorthand for an encoder or a memory (nature, gru, lstm, ...), or the dotted path of your own."""
    hidden_dims: tuple[int, ...] = (64, 64)
    """Width of each hidden layer; gru: the last one is recurrent; cnn: the layers after the convolutions."""
    activation: Activation = "tanh"
    """Non-linearity after each hidden layer."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """From observations to the input of the hidden layers: convolutions for images."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    """What the network remembers of the episode."""
    layer_norm: bool = False
    """Layer normalisation before each activation."""
    init: Literal["orthogonal", "xavier", "kaiming", "lecun"] = "orthogonal"
    """Initialisation of the weight matrices; biases start at 0."""
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    """Further arguments: for cnn, channels, kernels and strides (default: the Nature paper's); for your own, any."""

    def __post_init__(self) -> None:
        if any(not 1 <= width <= MAX_PARTS for width in self.hidden_dims):
            raise ConfigError(f"hidden_dims must be between 1 and {MAX_PARTS}, not {list(self.hidden_dims)}")


def backbone_of(values: Mapping[str, Any]) -> BackboneConfig:
    """The backbone that an algorithm has by default, from plain values."""
    memory = {"memory": MemoryConfig(**values["memory"])} if "memory" in values else {}
    return BackboneConfig(**{**values, **memory})


@dataclass(frozen=True)
class NetworkConfig:
    """Actor and critic networks."""

    __pydantic_config__ = SECTION

    actor: BackboneConfig = field(default_factory=BackboneConfig)
    """Backbone of the policy."""
    critic: BackboneConfig = field(default_factory=BackboneConfig)
    """Backbone of the value function."""
    shared: bool = False
    """One backbone (the actor's) for both heads."""
    critic_only: tuple[str, ...] = ()
    """Keys of a Dict observation that critics see and the actor does not; `critic_state` always is one of them."""


DEFAULT_NETWORK = NetworkConfig()
"""Sentinel, compared by identity: no `network:` section was given, so the algorithm's default applies."""
