"""Backbones: from an observation to features, with or without memory."""

from rl_training.models.backbones.build import build_backbone, width
from rl_training.models.backbones.mlp import MLP

__all__ = ["MLP", "build_backbone", "width"]
