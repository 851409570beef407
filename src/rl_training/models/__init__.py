"""Networks: backbone + head, composed in `networks`."""

from rl_training.models.backbones.build import build_backbone
from rl_training.models.backbones.mlp import MLP
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.networks import ActorCritic, BaseNetwork, PolicyNetwork, QNetwork, ValueNetwork
from rl_training.models.value_function import ValueFunction

__all__ = [
    "MLP",
    "ActorCritic",
    "BaseNetwork",
    "MLPActorCritic",
    "PolicyNetwork",
    "QNetwork",
    "ValueFunction",
    "ValueNetwork",
    "build_backbone",
]
