"""The composed backbone: an encoder per observation, fully connected layers, a memory. Any of them may be missing.

    pictures --> convolutions --+
    numbers  --> flat ----------+--> layers --> memory --> features
    codes    --> one-hot -------+

Without pictures and without memory `mlp.MLP` computes the same and is quicker to act with.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.networks import encoders_of
from rl_training.config.schema import BackboneConfig, MemoryConfig
from rl_training.models.backbones.cnn import PictureEncoder
from rl_training.models.backbones.memory import Memory
from rl_training.models.backbones.mlp import TensorObs, dense_layers, encode_leaf
from rl_training.models.backbones.recurrent import GRU, LSTM
from rl_training.models.backbones.transformer import Transformer
from rl_training.numerics.encoding import leaf_features, observation_leaves
from rl_training.numerics.pictures import picture_layout
from rl_training.types import BoxSpec, SpaceSpec


class Backbone(nn.Module):
    """Observations to features. Where there is a memory, it is asked (`memory.py`) with what `embed` gives."""

    def __init__(self, space: SpaceSpec, cfg: BackboneConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.leaves = observation_leaves(space)
        chosen = encoders_of(space, cfg.encoder)
        encoders = {}
        for name, encoder in chosen.items():
            leaf = self.leaves[name]
            assert isinstance(leaf, BoxSpec), "a picture is a Box"
            layout = picture_layout(leaf, cfg.encoder.channels)
            features = cfg.encoder.features
            encoders[name] = PictureEncoder(name, layout, encoder, rng, features=features, kind=cfg.init)
        self.flat = {name: leaf for name, leaf in self.leaves.items() if name not in encoders}
        self.pictures = nn.ModuleDict({module_name(name): encoder for name, encoder in encoders.items()})
        width = sum(encoder.out_features for encoder in encoders.values()) + sum(map(leaf_features, self.flat.values()))
        self.layers = dense_layers(width, cfg, rng)
        width = cfg.hidden_dims[-1] if cfg.hidden_dims else width
        self.cell = build_memory(cfg.memory, width, rng, cfg.init)
        self.out_features = width if self.cell is None else self.cell.out_features

    @property
    def memory(self) -> Memory | None:
        """What remembers, or None."""
        return cast("Memory | None", self.cell)

    def embed(self, obs: TensorObs) -> Tensor:
        """(B, ...) observations to what the memory sees, or to features where there is none."""
        named = obs if isinstance(obs, dict) else {"obs": obs}
        parts = [self.pictures[module_name(name)](named[name]) for name in self.leaves if name not in self.flat]
        parts += [encode_leaf(leaf, named[name]) for name, leaf in self.flat.items()]
        return cast(Tensor, self.layers(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)))

    def forward(self, obs: TensorObs) -> Tensor:
        """Features of observations that stand for themselves; a memory sees each as the beginning of an episode."""
        x = self.embed(obs)
        if self.memory is None:
            return x
        begins = torch.ones(len(x), dtype=torch.bool, device=x.device)
        return self.memory.step(x, self.memory.initial_carry(len(x)), begins)[0]


def module_name(key: str) -> str:
    """An observation's key as the name of a module, which cannot have a full stop."""
    return key.replace(".", "_")


def build_memory(
    cfg: MemoryConfig, inputs: int, rng: np.random.Generator, kind: str
) -> GRU | LSTM | Transformer | None:
    """The memory that a config asks for."""
    if cfg.type == "none":
        return None
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
