"""One image encoder for critics and actor: the critics' loss trains it, the actor sees its features without gradient.

That is how DrQ-v2 (Yarats et al. 2021, arXiv:2107.09645) arranges it. With an encoder for each critic and one for the
actor the convolutions would take several times as long, and the actor's loss tends to spoil their features.
Observations without images have no shared encoder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import nn

from rl_training.config.networks import COMPOSED, critic_only_keys, encoders_of, spelt_out
from rl_training.config.schema import BackboneConfig, EncoderConfig, MemoryConfig, NetworkConfig
from rl_training.models.backbones.composed import Backbone
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.observed import Encoded, Seen, Steps
from rl_training.numerics.encoding import observation_leaves
from rl_training.types import ACTION_MASK, BoxSpec, ConfigError, DictSpec, SpaceSpec

FEATURES = "features"
"""Name of the encoder's output where something else stands beside it."""
CRITIC_FEATURES = "critic_features"
"""Name of what the encoder makes of the observations that only critics see."""


class SharedEncoder(nn.Module):
    """Images through convolutions, everything else flattened and put beside them; an action mask passes through.

    The observations `hidden` from the actor have convolutions of their own, and features that stand apart.
    """

    def __init__(
        self, space: SpaceSpec, cfg: BackboneConfig, rng: np.random.Generator, hidden: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        cfg = replace(cfg, hidden_dims=(), memory=MemoryConfig())
        visible, apart = parts_of(space, hidden)
        self.body = Backbone(visible, cfg if apart is None else restricted(cfg, space, visible), rng)
        self.critic_body = None if apart is None else Backbone(apart, restricted(cfg, space, apart), rng)
        features = unbounded(self.body.out_features)
        mask = space.spaces.get(ACTION_MASK) if isinstance(space, DictSpec) else None
        named = {FEATURES: features} if mask is None else {FEATURES: features, ACTION_MASK: mask}
        if self.critic_body is not None:
            named |= {CRITIC_FEATURES: unbounded(self.critic_body.out_features)}
        self.space: SpaceSpec = features if len(named) == 1 else DictSpec(named)
        """The space of what comes out."""

    def forward(self, obs: TensorObs) -> TensorObs:
        """What critics see."""
        seen = self.acting(obs)
        if self.critic_body is None:
            return seen
        return {**(seen if isinstance(seen, dict) else {FEATURES: seen}), CRITIC_FEATURES: self.critic_body(obs)}

    def acting(self, obs: TensorObs) -> TensorObs:
        """What actors see."""
        features = self.body(obs)
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        if mask is None:
            return features if self.critic_body is None else {FEATURES: features}
        return {FEATURES: features, ACTION_MASK: mask}

    def see(self, obs: Seen) -> Encoded:
        """Observations with the features of this encoder, computed unless they are there already."""
        if isinstance(obs, Encoded):
            if obs.by is self:
                return obs
            obs = obs.raw
        return Encoded(self, obs, obs.encoded(self) if isinstance(obs, Steps) else self(obs))


def parts_of(space: SpaceSpec, hidden: tuple[str, ...]) -> tuple[SpaceSpec, DictSpec | None]:
    """The observations that actors see, and those `hidden` from them; None where nothing is hidden."""
    if not hidden or not isinstance(space, DictSpec):
        return space, None
    apart = {name: leaf for name, leaf in space.spaces.items() if name in hidden}
    return DictSpec({name: leaf for name, leaf in space.spaces.items() if name not in hidden}), DictSpec(apart)


def restricted(cfg: BackboneConfig, space: SpaceSpec, part: SpaceSpec) -> BackboneConfig:
    """The config with the encoder of each key that `part` of the space has written out."""
    leaves = observation_leaves(part)
    chosen = {name: encoder for name, encoder in encoders_of(space, cfg.encoder).items() if name in leaves}
    return replace(cfg, encoder=replace(cfg.encoder, type="mlp", keys=chosen))


def unbounded(width: int) -> BoxSpec:
    """The space of `width` features."""
    bound = np.full(width, np.inf, np.float32)
    return BoxSpec(-bound, bound, bound.dtype)


class Sharing(NamedTuple):
    """The encoder, if there are images, and what the networks behind it are built for."""

    encoder: SharedEncoder | None
    space: SpaceSpec
    network: NetworkConfig


def share_encoder(space: SpaceSpec, network: NetworkConfig, rng: np.random.Generator) -> Sharing:
    """The encoder that actor and critics share. Without images, or with critics of your own, everything stays."""
    if network.critic.type not in COMPOSED:
        return Sharing(None, space, network)
    actor, critic = spelt_out(network.actor), spelt_out(network.critic)
    if not encoders_of(space, critic.encoder):
        return Sharing(None, space, network)
    if network.actor.type not in COMPOSED:
        raise ConfigError(
            f"the actor sees images through the convolutions of the critics, which network.actor.type "
            f"'{network.actor.type}' cannot; give network.critic.type as your own network too"
        )
    if actor.encoder not in (EncoderConfig(), critic.encoder):
        raise ConfigError(
            "actor and critics share one encoder, that of network.critic; drop network.actor.encoder or make them equal"
        )
    hidden = critic_only_keys(space, network)
    encoder = SharedEncoder(space, critic, rng, hidden)
    flat = EncoderConfig("mlp")
    behind = replace(
        network,
        actor=replace(actor, encoder=flat),
        critic=replace(critic, encoder=flat),
        critic_only=(CRITIC_FEATURES,) if hidden else (),
    )
    return Sharing(encoder, encoder.space, behind)
