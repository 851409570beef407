"""What acting policies share: a network, the observation normaliser, and the state that a checkpoint keeps of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import nn

from rl_training.build_context import BuildContext
from rl_training.models.backbones.mlp import MLP, numpy_layer
from rl_training.models.networks import as_tensors, load_module_state, module_state
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.types import Array, Carry, Obs, StateDict


class NetworkPolicy:
    """Saves a network and the observation normaliser; a subclass writes `act`."""

    def __init__(self, network: nn.Module, ctx: BuildContext, normalizer: ObsNormalizer | None) -> None:
        self.network = network
        self.normalizer = normalizer
        self.device = torch.device(ctx.device)
        self.action_space = ctx.action_space

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def normalize(self, obs: Obs) -> Obs:
        """Observations as the network sees them."""
        return obs if self.normalizer is None else self.normalizer(obs)

    def state_dict(self) -> StateDict:
        normalizer = {} if self.normalizer is None else self.normalizer.state_dict()
        return {"network": module_state(self.network), "normalizer": normalizer}

    def load_state_dict(self, state: StateDict, /) -> None:
        load_module_state(self.network, state["network"])
        if self.normalizer is not None:
            self.normalizer.load_state_dict(state["normalizer"])


def host_forward(backbone: nn.Module, output: nn.Module, device: torch.device) -> Callable[[Obs], Array]:
    """`output(backbone(obs))` for acting: in NumPy for MLPs on the CPU, in torch otherwise."""
    features = backbone.numpy_forward() if isinstance(backbone, MLP) else None
    last = numpy_layer(output)
    if features is not None and last is not None:
        return lambda obs: last(features(obs))

    def run(obs: Obs) -> Array:
        with torch.no_grad():
            return cast(Array, output(backbone(as_tensors(obs, device))).cpu().numpy())

    return run
