"""What a network section stands for: shorthand types spelt out, and the encoder of each observation. Both backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rl_training.config.schema import BackboneConfig, EncoderConfig
from rl_training.numerics.encoding import observation_leaves
from rl_training.numerics.images import IMAGE_ENCODERS, encoder_for, is_image
from rl_training.registry import did_you_mean
from rl_training.types import BoxSpec, ConfigError, SpaceSpec

MEMORIES: Mapping[str, str] = {"gru": "gru", "lstm": "lstm", "rnn": "lstm", "transformer": "transformer"}
"""Types that stand for a memory as wide as the last of `hidden_dims`, behind the layers before it."""
COMPOSED = ("mlp", *IMAGE_ENCODERS, *MEMORIES)
"""Types of networks that are composed of an encoder, layers and a memory."""


def spelt_out(cfg: BackboneConfig) -> BackboneConfig:
    """A backbone with its shorthand type written as encoder and memory; other backbones as they are.

    >>> spelt_out(BackboneConfig(type="gru", hidden_dims=(64, 32))).memory.size
    32
    """
    if cfg.type in IMAGE_ENCODERS:
        return replace(cfg, type="mlp", encoder=replace(cfg.encoder, type=cfg.type))  # type: ignore[arg-type]
    if cfg.type not in MEMORIES:
        return cfg
    if not cfg.hidden_dims:
        raise ConfigError(f"network '{cfg.type}' needs hidden_dims; the last of them is how many numbers it remembers")
    *before, size = cfg.hidden_dims
    memory = replace(cfg.memory, type=MEMORIES[cfg.type], size=size)  # type: ignore[arg-type]
    return replace(cfg, type="mlp", hidden_dims=tuple(before), memory=memory)


def has_memory(cfg: BackboneConfig) -> bool:
    """Whether a composed backbone remembers anything."""
    return spelt_out(cfg).memory.type != "none"


def encoders_of(space: SpaceSpec, cfg: EncoderConfig) -> dict[str, str]:
    """The observations that go through convolutions, and which: name -> encoder. The others are flattened."""
    leaves = observation_leaves(space)
    for name in cfg.keys:
        if name not in leaves:
            known = ", ".join(leaves)
            raise ConfigError(f"encoder.keys: no observation is called '{name}'{did_you_mean(name, leaves)} ({known})")
    chosen = {}
    for name, leaf in leaves.items():
        asked = cfg.keys.get(name, cfg.type)
        if asked not in ("auto", "mlp", *IMAGE_ENCODERS):
            near = did_you_mean(asked, IMAGE_ENCODERS)
            raise ConfigError(f"encoder.keys.{name}: unknown encoder '{asked}'{near}")
        if asked in IMAGE_ENCODERS and not (isinstance(leaf, BoxSpec) and len(leaf.shape) in (3, 4)):
            if name in cfg.keys or len(leaves) == 1:
                raise ConfigError(
                    f"encoder '{asked}' needs an image, a Box of three axes; observation '{name}' has the shape "
                    f"{leaf.shape}; use encoder 'mlp' or 'auto'"
                )
            continue
        if asked == "auto" and not is_image(leaf):
            continue
        encoder = encoder_for(leaf, asked, cfg.channels)
        if encoder in IMAGE_ENCODERS:
            chosen[name] = encoder
    if cfg.type in IMAGE_ENCODERS and not chosen:
        raise ConfigError(f"encoder '{cfg.type}' needs an image among the observations ({', '.join(leaves)})")
    return chosen
