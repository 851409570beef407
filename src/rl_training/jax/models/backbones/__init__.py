"""Backbones of the JAX networks: from an observation to features, with or without memory."""

from rl_training.jax.models.backbones.base import Network
from rl_training.jax.models.backbones.cnn import cnn
from rl_training.jax.models.backbones.composed import composed
from rl_training.jax.models.backbones.mlp import mlp
from rl_training.jax.models.backbones.recurrent import gru

__all__ = ["Network", "cnn", "composed", "gru", "mlp"]
