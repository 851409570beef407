"""What a network section stands for: shorthand types, encoders, and what the actor may see. Both backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rl_training.config.schema import BackboneConfig, EncoderConfig, NetworkConfig
from rl_training.numerics.encoding import observation_leaves
from rl_training.numerics.images import IMAGE_ENCODERS, encoder_for, is_image
from rl_training.registry import did_you_mean
from rl_training.types import CRITIC_STATE, BoxSpec, ConfigError, DictSpec, SpaceSpec

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


def critic_only_keys(space: SpaceSpec, cfg: NetworkConfig) -> tuple[str, ...]:
    """Keys of the observations that critics see and the actor does not; ConfigError where that cannot be."""
    leaves = observation_leaves(space)
    if not isinstance(space, DictSpec):
        if cfg.critic_only:
            raise ConfigError("network.critic_only names keys of a Dict observation, and this observation has no keys")
        return ()
    for name in cfg.critic_only:
        if name not in leaves:
            known = ", ".join(leaves)
            near = did_you_mean(name, leaves)
            raise ConfigError(f"network.critic_only: no observation is called '{name}'{near} ({known})")
    hidden = tuple(name for name in leaves if name in (*cfg.critic_only, CRITIC_STATE))
    if hidden and len(hidden) == len(leaves):
        raise ConfigError(f"network.critic_only leaves the actor nothing to see: it names all of {', '.join(leaves)}")
    if hidden and cfg.shared:
        raise ConfigError(
            f"network.shared makes actor and critic one network, which cannot hide {', '.join(hidden)} from the actor; "
            "set network.shared: false"
        )
    return hidden


def actor_space(space: SpaceSpec, cfg: NetworkConfig) -> SpaceSpec:
    """The observations that the actor sees: all but those that only critics see."""
    hidden = critic_only_keys(space, cfg)
    if not hidden or not isinstance(space, DictSpec):
        return space
    return DictSpec({name: leaf for name, leaf in space.spaces.items() if name not in hidden})


def refuse_critic_only(space: SpaceSpec, cfg: NetworkConfig, algo: str) -> None:
    """ConfigError for an algorithm that acts with its critic, where an observation must be hidden from the actor."""
    hidden = critic_only_keys(space, cfg)
    if hidden:
        raise ConfigError(
            f"{algo} acts with the network that values the actions, so that nothing can be for critics only "
            f"({', '.join(hidden)}); take an algorithm with an actor, such as ppo or sac, or drop the key in a wrapper"
        )


def refuse_beside_world_model(cfg: NetworkConfig, *, normalize_obs: bool, normalize_reward: bool) -> None:
    """ConfigError where a config asks a world model for other networks, or for statistics that symlog replaces."""
    if cfg != NetworkConfig():
        raise ConfigError(
            "network: the networks of a world model follow from hparams.size (or hparams.custom) and hparams.dynamics; "
            "leave the section network out"
        )
    for name, asked in (("normalize_obs", normalize_obs), ("normalize_reward", normalize_reward)):
        if asked:
            raise ConfigError(
                f"env.{name}: a world model takes symlog of observations and predicts rewards of any size, so nothing "
                f"is to be normalised; leave env.{name} out"
            )
