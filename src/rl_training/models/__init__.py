"""Networks: backbone + head, composed in `networks`."""

from rl_training.models.backbones.mlp import MLP, build_backbone
from rl_training.models.networks import ActorCritic, PolicyNetwork, QNetwork, ValueNetwork

__all__ = ["MLP", "ActorCritic", "PolicyNetwork", "QNetwork", "ValueNetwork", "build_backbone"]
