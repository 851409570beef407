"""The composed backbone: an encoder per observation, fully connected layers, a memory. Any of them may be missing.

    images --> convolutions --+
    numbers  --> flat ----------+--> layers --> memory --> features
    codes    --> one-hot -------+

Without images and without memory `mlp.MLP` computes the same and is quicker to act with.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.networks import encoders_of
from rl_training.config.schema import BackboneConfig, MemoryConfig
from rl_training.models.backbones.cnn import ImageEncoder
from rl_training.models.backbones.memory import Memory
from rl_training.models.backbones.mlp import TensorObs, dense_layers, encode_leaf
from rl_training.models.backbones.recurrent import GRU, LSTM
from rl_training.models.backbones.transformer import Transformer
from rl_training.numerics.encoding import leaf_features, observation_leaves
from rl_training.numerics.images import image_layout
from rl_training.types import BoxSpec, SpaceSpec


class Backbone(nn.Module):
    """Observations to features, without memory."""

    def __init__(self, space: SpaceSpec, cfg: BackboneConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.leaves = observation_leaves(space)
        chosen = encoders_of(space, cfg.encoder)
        encoders = {}
        for name, encoder in chosen.items():
            leaf = self.leaves[name]
            assert isinstance(leaf, BoxSpec), "an image is a Box"
            layout = image_layout(leaf, cfg.encoder.channels)
            features = cfg.encoder.features
            encoders[name] = ImageEncoder(name, layout, encoder, rng, features=features, kind=cfg.init)
        self.flat = {name: leaf for name, leaf in self.leaves.items() if name not in encoders}
        self.images = nn.ModuleDict({module_name(name): encoder for name, encoder in encoders.items()})
        width = sum(encoder.out_features for encoder in encoders.values()) + sum(map(leaf_features, self.flat.values()))
        self.layers = dense_layers(width, cfg, rng)
        self.out_features = cfg.hidden_dims[-1] if cfg.hidden_dims else width

    def embed(self, obs: TensorObs) -> Tensor:
        """(B, ...) observations to what the memory sees, or to features where there is none."""
        named = obs if isinstance(obs, dict) else {"obs": obs}
        parts = [self.images[module_name(name)](named[name]) for name in self.leaves if name not in self.flat]
        parts += [encode_leaf(leaf, named[name]) for name, leaf in self.flat.items()]
        return cast(Tensor, self.layers(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)))

    def arranged(self, obs: TensorObs) -> TensorObs:
        """The same observations with their images in the memory format that the encoders read, for many passes."""
        if not isinstance(obs, dict):
            return cast(ImageEncoder, self.images["obs"]).arranged(obs) if "obs" not in self.flat else obs
        encoders = {name: self.images[module_name(name)] for name in self.leaves if name not in self.flat}
        return {**obs, **{name: cast(ImageEncoder, encoder).arranged(obs[name]) for name, encoder in encoders.items()}}

    def forward(self, obs: TensorObs) -> Tensor:
        return self.embed(obs)


class RememberingBackbone(Backbone):
    """A composed backbone with a memory behind its layers; see `memory.py`."""

    def __init__(self, space: SpaceSpec, cfg: BackboneConfig, rng: np.random.Generator) -> None:
        super().__init__(space, cfg, rng)
        self.cell = build_memory(cfg.memory, self.out_features, rng, cfg.init)
        self.out_features = self.cell.out_features

    @property
    def memory(self) -> Memory:
        """What remembers."""
        return self.cell

    def forward(self, obs: TensorObs) -> Tensor:
        """Features of observations that stand for themselves: each is taken for the beginning of an episode."""
        x = self.embed(obs)
        begins = torch.ones(len(x), dtype=torch.bool, device=x.device)
        return self.memory.step(x, self.memory.initial_carry(len(x)), begins)[0]


def module_name(key: str) -> str:
    """An observation's key as the name of a module, which cannot have a full stop."""
    return key.replace(".", "_")


def build_memory(cfg: MemoryConfig, inputs: int, rng: np.random.Generator, kind: str) -> GRU | LSTM | Transformer:
    """The memory that a config asks for."""
    if cfg.type == "transformer":
        return Transformer(
            inputs,
            cfg.size,
            rng,
            layers=cfg.layers,
            heads=cfg.heads,
            window=cfg.window,
            gating=cfg.gating,
            kind=kind,
        )
    return (GRU if cfg.type == "gru" else LSTM)(inputs, cfg.size, rng, kind)
