"""Backbones of your own behind a filter of observations, for actors that must not see what is for critics only."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from rl_training.models.backbones.memory import Memory, Remembering
from rl_training.models.backbones.mlp import TensorObs
from rl_training.types import DictSpec


class Filtered(nn.Module):
    """A backbone that is shown the keys of its space, whatever else stands beside them."""

    def __init__(self, backbone: nn.Module, space: DictSpec) -> None:
        super().__init__()
        self.backbone = backbone
        self.shown = tuple(space.spaces)
        self.out_features = cast(int, backbone.out_features)

    def visible(self, obs: TensorObs) -> TensorObs:
        return {name: obs[name] for name in self.shown} if isinstance(obs, dict) else obs

    def forward(self, obs: TensorObs) -> Tensor:
        return cast(Tensor, self.backbone(self.visible(obs)))


class FilteredRemembering(Filtered):
    """The same for a backbone with memory."""

    @property
    def memory(self) -> Memory:
        return cast(Remembering, self.backbone).memory

    def embed(self, obs: TensorObs) -> Tensor:
        return cast(Remembering, self.backbone).embed(self.visible(obs))


def filtered(backbone: nn.Module, space: DictSpec) -> Filtered:
    """The backbone behind a filter that lets the keys of `space` pass."""
    return (FilteredRemembering if isinstance(backbone, Remembering) else Filtered)(backbone, space)
