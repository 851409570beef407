"""Backbones: from an observation to features."""

from rl_training.models.backbones.mlp import MLP, build_backbone, width

__all__ = ["MLP", "build_backbone", "width"]
