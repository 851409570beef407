"""Compositions of backbones and heads, and three networks for use outside of the algorithms.

`ActorCritic` is what the on-policy algorithms train. `PolicyNetwork`, `ValueNetwork` and `QNetwork` are one backbone
with one head each, for use by hand and in your own algorithms; `BaseNetwork` is what these three share.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.checkpointing.safetensors_format import blob_chunks, parse_blob
from rl_training.checkpointing.state_tree import flatten
from rl_training.checkpointing.verified_files import opened, read_file
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.models.backbones.build import build_actor_backbone, build_backbone, build_seeing, width
from rl_training.models.backbones.composed import Backbone
from rl_training.models.backbones.memory import MemoryCarry, Remembering, Trace, carry_of, prefixed
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.heads import ActionHead, ActionParams, DuelingHead, QHead, ValueHead, build_action_head
from rl_training.models.observed import Seen, action_mask, features_of
from rl_training.models.transfer import to_device
from rl_training.system.atomic_io import atomic_write
from rl_training.types import Array, CheckpointError, DiscreteSpec, Obs, SpaceSpec, StateDict


class ActorCritic(nn.Module):
    """Policy and state value, on separate backbones or one shared; `cfg.critic_only` hides keys from the actor."""

    def __init__(
        self,
        observation_space: SpaceSpec,
        action_space: SpaceSpec,
        cfg: NetworkConfig,
        rng: np.random.Generator,
        *,
        log_std_init: float = 0.0,
        use_sde: bool = False,
        intrinsic_value: bool = False,
        critic_space: SpaceSpec | None = None,
    ) -> None:
        """`critic_space` is the part of the observations that the critic sees; None shows it everything."""
        super().__init__()
        self.actor = build_actor_backbone(observation_space, cfg, rng)
        visible = observation_space if critic_space is None else critic_space
        self.critic = self.actor if cfg.shared else build_seeing(observation_space, visible, cfg.critic, rng)
        actor_features, critic_features = width(self.actor), width(self.critic)
        self.action_head = build_action_head(
            actor_features, action_space, rng, log_std_init=log_std_init, use_sde=use_sde
        )
        self.value_head = ValueHead(critic_features, rng)
        self.intrinsic_head = ValueHead(critic_features, rng) if intrinsic_value else None
        """Value of an exploration bonus; values then have two columns (B, 2), the environment's and this one."""

    @cached_property
    def memories(self) -> dict[str, Remembering]:
        """The backbones that remember, by name; a shared one is called actor."""
        backbones = {"actor": self.actor} if self.critic is self.actor else {"actor": self.actor, "critic": self.critic}
        return {name: backbone for name, backbone in backbones.items() if isinstance(backbone, Remembering)}

    def arranged(self, obs: TensorObs) -> TensorObs:
        """The same observations in the memory format that the backbones read, for many passes over them."""
        for backbone in (self.actor, self.critic):
            obs = backbone.arranged(obs) if isinstance(backbone, Backbone) else obs
        return obs

    def values(self, obs: TensorObs) -> Tensor:
        """State values (B,)."""
        return self._values(self.critic(obs))

    def _values(self, features: Tensor) -> Tensor:
        values = cast(Tensor, self.value_head(features))
        return values if self.intrinsic_head is None else torch.stack([values, self.intrinsic_head(features)], dim=1)

    def forward(self, obs: TensorObs, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities and entropies of `actions`, and state values; (B,) each."""
        features = self.actor(obs)
        values = features if self.critic is self.actor else self.critic(obs)
        return self._evaluated(features, values, obs, actions)

    def _evaluated(
        self, features: Tensor, critic_features: Tensor, obs: TensorObs, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        logprobs, entropy = self.action_head.logprob_entropy(self.action_head(features), actions, action_mask(obs))
        return logprobs, entropy, self._values(critic_features)

    # -- with memory --------------------------------------------------------------------------------------------------

    def initial_carry(self, num_envs: int) -> MemoryCarry:
        """Nothing remembered yet, for N environments; names are `backbone/part`."""
        return prefixed({name: backbone.memory.initial_carry(num_envs) for name, backbone in self.memories.items()})

    def advance(self, obs: TensorObs, carry: MemoryCarry, is_first: Tensor) -> tuple[Tensor, MemoryCarry]:
        """Features of the actor for one step of N environments, and the carry of all memories after it."""
        after, features = {}, None
        for name, backbone in self.memories.items():
            seen, after[name] = backbone.memory.step(backbone.embed(obs), carry_of(carry, name), is_first)
            features = seen if name == "actor" else features
        return (self.actor(obs) if features is None else features), prefixed(after)

    def follow(
        self, obs: TensorObs, actions: Tensor, carry: MemoryCarry, is_first: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], dict[str, Trace]]:
        """What `forward` gives for rows (T * N, ...) in the order of time, remembering along the way; and the traces.

        `carry` is that before the first step and `is_first` (T, N) says where episodes begin.
        """
        features, traces = {}, {}
        for name, backbone in self.memories.items():
            inputs = backbone.embed(obs).view(*is_first.shape, -1)
            followed, traces[name] = backbone.memory.follow(inputs, carry_of(carry, name), is_first)
            features[name] = followed.flatten(0, 1)
        actor = features["actor"] if "actor" in features else self.actor(obs)
        critic = actor if self.critic is self.actor else features.get("critic")
        return self._evaluated(actor, self.critic(obs) if critic is None else critic, obs, actions), traces

    def next_values(self, obs: TensorObs, carry: MemoryCarry) -> Tensor:
        """Values (B,) of observations that follow the step after which the critic's memory was `carry`."""
        name = "actor" if self.critic is self.actor else "critic"
        if name not in self.memories:
            return self.values(obs)
        backbone = self.memories[name]
        x = backbone.embed(obs)
        goes_on = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return self._values(backbone.memory.step(x, carry, goes_on)[0])


class BaseNetwork(nn.Module):
    """An `nn.Module` that knows its device and its size, and keeps its weights in a safetensors file."""

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def num_parameters(self) -> int:
        """Trainable numbers, shared ones counted once."""
        return parameter_count([self])

    def save(self, path: str | Path) -> Path:
        """Write parameters and buffers, atomically, as a file that the safetensors library opens too."""
        state = {name: np.ascontiguousarray(value) for name, value in module_state(self).items()}
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, b"".join(bytes(chunk) for chunk in blob_chunks(flatten(state).arrays)))
        return path

    def load(self, path: str | Path) -> None:
        """Read what `save` wrote, in place. CheckpointError if the file is damaged or of another network."""
        path = Path(path)
        with opened(path.parent) as folder:
            arrays = parse_blob(read_file(folder, path.name, None), f"'{path}'")
        try:
            load_module_state(self, arrays)
        except RuntimeError as error:
            raise CheckpointError(f"'{path}' holds the weights of another network: {error}") from error


class PolicyNetwork(BaseNetwork):
    """A policy alone: backbone and action head."""

    def __init__(
        self,
        observation_space: SpaceSpec,
        action_space: SpaceSpec,
        cfg: BackboneConfig | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        self.rng = rng if rng is not None else np.random.default_rng(0)
        self.backbone = build_backbone(observation_space, cfg or BackboneConfig(), self.rng)
        self.head: ActionHead = build_action_head(width(self.backbone), action_space, self.rng)

    def forward(self, obs: TensorObs) -> ActionParams:
        return cast(ActionParams, self.head(self.backbone(obs)))

    @torch.no_grad()
    def get_action(
        self, obs: Obs | TensorObs, deterministic: bool = False, rng: np.random.Generator | None = None
    ) -> Array:
        """Actions for a batch of observations, drawn with `rng` or else this network's own generator."""
        tensors = as_tensors(obs, self.device)
        mask = action_mask(tensors)
        mean = self(tensors).mean.cpu().numpy()
        return self.head.sample(
            mean, rng or self.rng, deterministic=deterministic, mask=None if mask is None else mask.cpu().numpy()
        )

    def log_prob(self, obs: TensorObs, actions: Tensor) -> Tensor:
        return self.head.logprob_entropy(self(obs), actions, action_mask(obs))[0]

    def entropy(self, obs: TensorObs, actions: Tensor) -> Tensor:
        return self.head.logprob_entropy(self(obs), actions, action_mask(obs))[1]


class ValueNetwork(BaseNetwork):
    """A state value alone: backbone and value head."""

    def __init__(
        self,
        observation_space: SpaceSpec,
        cfg: BackboneConfig | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        rng = rng if rng is not None else np.random.default_rng(0)
        self.backbone = build_backbone(observation_space, cfg or BackboneConfig(), rng)
        self.head = ValueHead(width(self.backbone), rng)

    def forward(self, obs: Seen) -> Tensor:
        return cast(Tensor, self.head(features_of(self.backbone, obs)))


class QNetwork(BaseNetwork):
    """Action values alone: backbone and Q head, plain or dueling."""

    def __init__(
        self,
        observation_space: SpaceSpec,
        action_space: DiscreteSpec,
        cfg: BackboneConfig | None = None,
        rng: np.random.Generator | None = None,
        *,
        dueling: bool = False,
    ) -> None:
        super().__init__()
        rng = rng if rng is not None else np.random.default_rng(0)
        self.backbone = build_backbone(observation_space, cfg or BackboneConfig(), rng)
        self.head = (DuelingHead if dueling else QHead)(width(self.backbone), action_space.n, rng)

    def forward(self, obs: TensorObs) -> Tensor:
        return cast(Tensor, self.head(self.backbone(obs)))

    @torch.no_grad()
    def get_q_values(self, obs: Obs | TensorObs) -> Tensor:
        """Values (B, A) of every action, without gradients."""
        return cast(Tensor, self(as_tensors(obs, self.device)))


# -- helpers ----------------------------------------------------------------------------------------------------------


def as_tensors(obs: Obs | TensorObs, device: torch.device | str = "cpu") -> TensorObs:
    """Arrays as tensors on `device`; on the CPU they share memory."""
    if isinstance(obs, dict):
        return {name: to_device(value, device) for name, value in obs.items()}
    return to_device(obs, device)


@torch.no_grad()
def polyak_update(source: nn.Module, target: nn.Module, tau: float) -> None:
    """target <- target + tau (source - target) for parameters; buffers are copied. tau = 1 is a hard update."""
    for online, lagging in zip(source.parameters(), target.parameters(), strict=True):
        lagging.data.lerp_(online.data, tau)
    for current, stale in zip(source.buffers(), target.buffers(), strict=True):
        stale.copy_(current)


def parameter_count(modules: Iterable[nn.Module]) -> int:
    """Number of trainable parameters, shared ones counted once."""
    return sum(p.numel() for p in {id(p): p for m in modules for p in m.parameters()}.values())


def module_state(module: nn.Module) -> StateDict:
    """Parameters and buffers by name as arrays; tied ones share one array."""
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def load_module_state(module: nn.Module, state: StateDict) -> None:
    """The inverse of `module_state`, in place: views of the weights stay valid."""
    module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})
