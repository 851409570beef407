"""What acting policies share: a network, the observation normaliser, and the state that a checkpoint keeps of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import nn

from rl_training.build_context import BuildContext
from rl_training.export.graph import PolicyGraph
from rl_training.export.policies import Blueprint, Head, graph_of
from rl_training.models.backbones.memory import MemoryCarry, Remembering
from rl_training.models.backbones.mlp import MLP, numpy_layer
from rl_training.models.networks import as_tensors, load_module_state, module_state
from rl_training.models.shared_encoder import SharedEncoder
from rl_training.models.transfer import to_device
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.types import Array, Carry, Obs, StateDict

Forward = Callable[[Obs, Carry, Array], tuple[Array, Carry]]
"""(observations, carry, is_first) -> (outputs of a network, the carry after it), on the host."""

STORED_CARRY = "carry/"
"""Prefix of the extras that hold what a policy remembered before a step."""


class TorchParts(NamedTuple):
    """What greedy actions are computed by, for `torch.export`."""

    backbone: nn.Module
    output: nn.Module
    """Features to logits, action values or means."""
    squash: bool = False
    """Whether real actions are the tanh of the output, scaled to the bounds, and not the output itself."""


class NetworkPolicy:
    """Saves a network, the encoder before it and the observation normaliser; a subclass writes `act`."""

    def __init__(
        self,
        network: nn.Module,
        ctx: BuildContext,
        normalizer: ObsNormalizer | None,
        encoder: SharedEncoder | None = None,
    ) -> None:
        self.network = network
        self.encoder = encoder
        """What images pass through before the network, where critics and actor share it."""
        self.normalizer = normalizer
        self.backbone: object = None
        """What acts and may remember; a subclass with memory sets it."""
        self.stores_carry = False
        """Whether every step is stored with what was remembered before it."""
        self.device = torch.device(ctx.device)
        self.observation_space, self.action_space = ctx.observation_space, ctx.action_space
        self.network_config = ctx.network

    @property
    def remembers(self) -> bool:
        return isinstance(self.backbone, Remembering)

    def initial_carry(self, num_envs: int) -> Carry:
        return to_arrays(self.backbone.memory.initial_carry(num_envs)) if isinstance(self.backbone, Remembering) else {}

    def remembered(self, obs: Obs, carry: Carry, is_first: Array) -> Carry:
        """What is remembered after raw observations, whatever is done there."""
        if not isinstance(self.backbone, Remembering):
            return carry
        return remembering_forward(self.backbone, nn.Identity(), self.device, self.encoder)(
            self.normalize(obs), carry, is_first
        )[1]

    def stored(self, carry: Carry) -> dict[str, Array]:
        """The carry before a step as extras of that step, where it is stored."""
        return {f"{STORED_CARRY}{name}": value for name, value in carry.items()} if self.stores_carry else {}

    def acting_modules(self) -> list[nn.Module]:
        """What an observation passes through on its way to an action."""
        return [self.network] if self.encoder is None else [self.encoder, self.network]

    def normalize(self, obs: Obs) -> Obs:
        """Observations as the network sees them."""
        return obs if self.normalizer is None else self.normalizer(obs)

    def graph(self) -> PolicyGraph | None:
        """The greedy policy as a graph; a subclass whose actions follow from its network alone says how."""
        return None

    def torch_parts(self) -> TorchParts | None:
        """The modules that acting passes through; None where an action follows from more than these."""
        return None

    def graph_with(self, head: Head, support: Array | None = None) -> PolicyGraph | None:
        """The graph of a network with one of the heads that graphs know."""
        blueprint = Blueprint(self.observation_space, self.action_space, self.network_config, head, support)
        return graph_of(blueprint, self.state_dict())

    def state_dict(self) -> StateDict:
        normalizer = {} if self.normalizer is None else self.normalizer.state_dict()
        encoder = {} if self.encoder is None else {"encoder": module_state(self.encoder)}
        return {"network": module_state(self.network), "normalizer": normalizer, **encoder}

    def load_state_dict(self, state: StateDict, /) -> None:
        load_module_state(self.network, state["network"])
        if self.encoder is not None:
            load_module_state(self.encoder, state["encoder"])
        if self.normalizer is not None:
            self.normalizer.load_state_dict(state["normalizer"])


def host_forward(
    backbone: nn.Module, output: nn.Module, device: torch.device, encoder: SharedEncoder | None = None
) -> Forward:
    """`output(backbone(obs))` for acting: in NumPy for MLPs on the CPU, in torch otherwise."""
    if isinstance(backbone, Remembering):
        return remembering_forward(backbone, output, device, encoder)
    features = backbone.numpy_forward() if isinstance(backbone, MLP) and encoder is None else None
    last = numpy_layer(output)
    if features is not None and last is not None:
        return lambda obs, carry, is_first: (last(features(obs)), carry)

    def run(obs: Obs, carry: Carry, is_first: Array) -> tuple[Array, Carry]:
        with torch.no_grad():
            tensors = as_tensors(obs, device)
            features = backbone(tensors if encoder is None else encoder.acting(tensors))
            return cast(Array, output(features).cpu().numpy()), carry

    return run


def remembering_forward(
    backbone: Remembering, output: nn.Module, device: torch.device, encoder: SharedEncoder | None
) -> Forward:
    """`host_forward` for a backbone with memory: one step of it."""

    def run(obs: Obs, carry: Carry, is_first: Array) -> tuple[Array, Carry]:
        with torch.no_grad():
            tensors = as_tensors(obs, device)
            x = backbone.embed(tensors if encoder is None else encoder.acting(tensors))
            memory = {name: to_device(value, device) for name, value in carry.items()}
            features, after = backbone.memory.step(x, memory, to_device(is_first, device))
            return cast(Array, output(features).cpu().numpy()), to_arrays(after)

    return run


def to_arrays(carry: MemoryCarry) -> Carry:
    """What a memory carries as arrays, which is how collectors and checkpoints hold it."""
    return {name: value.cpu().numpy() for name, value in carry.items()}
