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

from rl_training.config.networks import COMPOSED, encoders_of, spelt_out
from rl_training.config.schema import BackboneConfig, EncoderConfig, MemoryConfig, NetworkConfig
from rl_training.models.backbones.composed import Backbone
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.observed import Encoded, Seen, Steps
from rl_training.types import ACTION_MASK, BoxSpec, ConfigError, DictSpec, SpaceSpec

FEATURES = "features"
"""Name of the encoder's output where an action mask stands beside it."""


class SharedEncoder(nn.Module):
    """Images through convolutions, everything else flattened and put beside them; an action mask passes through."""

    def __init__(self, space: SpaceSpec, cfg: BackboneConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.body = Backbone(space, replace(cfg, hidden_dims=(), memory=MemoryConfig()), rng)
        bound = np.full(self.body.out_features, np.inf, np.float32)
        features = BoxSpec(-bound, bound, bound.dtype)
        mask = space.spaces.get(ACTION_MASK) if isinstance(space, DictSpec) else None
        self.space: SpaceSpec = features if mask is None else DictSpec({FEATURES: features, ACTION_MASK: mask})
        """The space of what comes out."""

    def forward(self, obs: TensorObs) -> TensorObs:
        features = self.body(obs)
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        return features if mask is None else {FEATURES: features, ACTION_MASK: mask}

    def see(self, obs: Seen) -> Encoded:
        """Observations with the features of this encoder, computed unless they are there already."""
        if isinstance(obs, Encoded):
            if obs.by is self:
                return obs
            obs = obs.raw
        return Encoded(self, obs, obs.encoded(self) if isinstance(obs, Steps) else self(obs))


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
    encoder = SharedEncoder(space, critic, rng)
    flat = EncoderConfig("mlp")
    behind = replace(network, actor=replace(actor, encoder=flat), critic=replace(critic, encoder=flat))
    return Sharing(encoder, encoder.space, behind)
