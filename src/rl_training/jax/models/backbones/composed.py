"""The composed backbone: an encoder per observation, fully connected layers, a memory. Any of them may be missing.

The twin of `models/backbones/composed.py`, with the same weights under the same names. Without images and without
memory, or with a GRU, it is the network of version 0.1.0 to the last bit.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from rl_training.config.networks import encoders_of, spelt_out
from rl_training.config.schema import BackboneConfig
from rl_training.jax.models.backbones.base import Network
from rl_training.jax.models.backbones.cnn import image_encoder
from rl_training.jax.models.backbones.mlp import dense_layers, mlp
from rl_training.jax.models.backbones.recurrent import gru_behind, lstm_behind
from rl_training.jax.models.backbones.transformer import transformer_behind
from rl_training.jax.models.layers import Params, encode_leaf
from rl_training.jax.pytrees import below, named
from rl_training.numerics.encoding import leaf_features, observation_leaves
from rl_training.numerics.images import image_layout
from rl_training.types import BoxSpec, SpaceSpec


def composed(space: SpaceSpec, cfg: BackboneConfig) -> Network:
    """Encoders, layers and memory as the config asks for them, shorthand types among them."""
    cfg = spelt_out(cfg)
    memory, images = cfg.memory, encoders_of(space, cfg.encoder)
    is_new = bool(images) or memory.type in ("lstm", "transformer")
    body = with_images(space, cfg, images) if images else mlp(space, cfg, exact=is_new)
    if memory.type == "none":
        return body
    if memory.type == "transformer":
        return transformer_behind(body, memory, cfg.init)
    return (gru_behind if memory.type == "gru" else lstm_behind)(body, memory.size, cfg.init)


def with_images(space: SpaceSpec, cfg: BackboneConfig, chosen: dict[str, str]) -> Network:
    """Convolutions over the images, the other observations flattened beside them, then fully connected layers."""
    leaves = observation_leaves(space)
    encoders = {}
    for name, encoder in chosen.items():
        leaf = leaves[name]
        assert isinstance(leaf, BoxSpec), "an image is a Box"
        layout = image_layout(leaf, cfg.encoder.channels)
        encoders[name] = image_encoder(name, layout, encoder, features=cfg.encoder.features, kind=cfg.init)
    flat = {name: leaf for name, leaf in leaves.items() if name not in encoders}
    width = sum(encoder.out_features for encoder in encoders.values()) + sum(map(leaf_features, flat.values()))
    layers = dense_layers([width, *cfg.hidden_dims], cfg, exact=True)

    def init(rng: np.random.Generator) -> Params:
        params: Params = {}
        for name, encoder in encoders.items():
            params |= named(weights_of(name), encoder.init(rng))
        return params | layers.init(rng)

    def apply(params: Params, obs: Any) -> Any:
        by_name = obs if isinstance(obs, dict) else {"obs": obs}
        parts = [encoder.apply(below(params, weights_of(name)), by_name[name]) for name, encoder in encoders.items()]
        parts += [encode_leaf(leaf, jnp.asarray(by_name[name])) for name, leaf in flat.items()]
        return layers.apply(params, parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1))

    return Network(init, apply, layers.out_features)


def weights_of(key: str) -> str:
    """Under which name the weights of an observation's encoder are; a full stop in the key becomes an underscore."""
    return f"images.{key.replace('.', '_')}"
