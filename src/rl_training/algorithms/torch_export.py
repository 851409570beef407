"""Greedy policies as torch modules for `torch.export`: the way out for networks that graphs cannot say.

A module maps inputs by name to outputs by name, as a `PolicyGraph` does: raw observations in, actions as the
environment takes them out. `torch.export` turns it into a program that torch alone can load.
"""

from __future__ import annotations

import copy
import io
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.offline.dt import SequencePolicy
from rl_training.algorithms.policies import NetworkPolicy, TorchParts
from rl_training.algorithms.world_models.dreamer import DreamerPolicy
from rl_training.algorithms.world_models.latent_policy import PREVIOUS, LatentPolicy
from rl_training.config.networks import actor_space
from rl_training.export.check import Runner
from rl_training.export.graph import Value
from rl_training.models.backbones.memory import Remembering
from rl_training.models.heads import MASKED_LOGIT
from rl_training.numerics.encoding import observation_leaves
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.types import (
    ACTION_MASK,
    REWARD,
    Array,
    BoxSpec,
    ConfigError,
    DictSpec,
    DiscreteSpec,
    MultiDiscreteSpec,
    SpaceSpec,
)


class ExportedModule(nn.Module):
    """Inputs by name to outputs by name; a subclass writes `forward`."""

    carried: dict[str, tuple[str, tuple[int, ...]]]
    """dtype and shape of each part of the memory."""

    def __init__(
        self, observation_space: SpaceSpec, action_space: SpaceSpec, normalizer: ObsNormalizer | None = None
    ) -> None:
        super().__init__()
        self.affine = {} if normalizer is None else normalizer.affine()
        self.clip = 0.0 if normalizer is None else normalizer.clip
        self.space, self.is_dict = action_space, isinstance(observation_space, DictSpec)
        self.leaves = observation_leaves(observation_space)
        self.mask = observation_space.spaces.get(ACTION_MASK) if isinstance(observation_space, DictSpec) else None

    def normalized(self, key: str, value: Tensor) -> Tensor:
        if key not in self.affine:
            return value
        mean, inverse_std = (torch.from_numpy(np.array(part)) for part in self.affine[key])
        return ((value.double() - mean) * inverse_std).clamp(-self.clip, self.clip).float()

    def inputs(self) -> tuple[Value, ...]:
        """What `forward` takes."""
        names = {f"obs/{key}" if self.is_dict else "obs": leaf for key, leaf in self.leaves.items()}
        found = [Value(name, leaf.dtype.name, leaf.shape) for name, leaf in names.items()]
        if self.mask is not None:
            found.append(Value(ACTION_MASK, self.mask.dtype.name, self.mask.shape))
        if self.carried:
            found.append(Value("is_first", "bool", ()))
        return (*found, *(Value(f"carry/{name}", *kind) for name, kind in self.carried.items()))


class GreedyModule(ExportedModule):
    """Normaliser, encoder, backbone, output layer and greedy action of a policy with a network."""

    def __init__(self, policy: NetworkPolicy, parts: TorchParts) -> None:
        seen = actor_space(policy.observation_space, policy.network_config)
        super().__init__(seen, policy.action_space, policy.normalizer)
        self.backbone, self.output, self.squash = parts
        self.encoder = policy.encoder
        body = parts.backbone
        memory = body.memory.initial_carry(1) if isinstance(body, Remembering) else {}
        self.carried = {
            name: (value.cpu().numpy().dtype.name, tuple(value.shape[1:])) for name, value in memory.items()
        }

    def forward(self, feeds: dict[str, Tensor]) -> dict[str, Tensor]:
        seen = {key: self.normalized(key, feeds[f"obs/{key}" if self.is_dict else "obs"]) for key in self.leaves}
        mask = feeds.get(ACTION_MASK)
        obs: Any = seen if mask is None else {**seen, ACTION_MASK: mask}
        obs = obs if self.is_dict else seen["obs"]
        obs = obs if self.encoder is None else self.encoder.acting(obs)
        after: dict[str, Tensor] = {}
        if isinstance(self.backbone, Remembering):
            carry = {name: feeds[f"carry/{name}"] for name in self.carried}
            features, after = self.backbone.memory.step(self.backbone.embed(obs), carry, feeds["is_first"])
        else:
            features = self.backbone(obs)
        outputs = self.greedy(self.output(features), mask)
        return {**outputs, **{f"next_carry/{name}": value for name, value in after.items()}}

    def greedy(self, outputs: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """The best action from the outputs of the last layer, and logits where actions are discrete."""
        if isinstance(self.space, BoxSpec):
            return {"actions": bounded(self.space, outputs, squash=self.squash)}
        logits = outputs if mask is None else outputs.masked_fill(mask == 0, MASKED_LOGIT)
        if isinstance(self.space, DiscreteSpec):
            return {"actions": logits.argmax(1), "logits": logits}
        if isinstance(self.space, MultiDiscreteSpec):
            parts = torch.split(logits, list(self.space.nvec), dim=1)
            return {"actions": torch.stack([part.argmax(1) for part in parts], dim=1), "logits": logits}
        return {"actions": (logits > 0).to(torch.int8), "logits": logits}


def bounded(space: BoxSpec, outputs: Tensor, *, squash: bool) -> Tensor:
    """Real actions (B, size) clipped to the bounds, or squashed by tanh and scaled to them."""
    actions = outputs[:, : math.prod(space.shape)].reshape(-1, *space.shape)
    return within(space, scaled(space, torch.tanh(actions)) if squash else actions)


def scaled(space: BoxSpec, actions: Tensor) -> Tensor:
    """Actions in -1..1 to the bounds."""
    low, high = bounds(space)
    share = (0.5 * (actions + 1.0)).to(low.dtype)
    return (1.0 - share) * low + share * high if space.is_wide else low + share * (high - low)


def within(space: BoxSpec, actions: Tensor) -> Tensor:
    """Actions clipped to the bounds, in the dtype of the space."""
    low, high = bounds(space)
    inside = torch.minimum(torch.maximum(actions.to(low.dtype), low), high)
    return inside.to(torch.from_numpy(np.zeros(0, space.dtype)).dtype)


def bounds(space: BoxSpec) -> tuple[Tensor, Tensor]:
    """The bounds in the dtype that actions are computed in."""
    dtype = torch.float64 if np.result_type(np.float32, space.dtype) == np.float64 else torch.float32
    low, high = (torch.from_numpy(np.array(bound)).to(dtype) for bound in (space.low, space.high))
    return low, high


class LatentModule(ExportedModule):
    """A policy that follows the state of a world model: Dreamer's."""

    def __init__(self, policy: LatentPolicy, actor: nn.Module) -> None:
        learner = policy.learner
        super().__init__(learner.ctx.observation_space, policy.action_space)
        self.model, self.actor, self.actions = policy.model, actor, learner.actions
        carry = policy.initial_carry(1)
        self.carried = {name: (value.dtype.name, value.shape[1:]) for name, value in carry.items()}

    def forward(self, feeds: dict[str, Tensor]) -> dict[str, Tensor]:
        dynamics = self.model.dynamics
        state = dynamics.restored({name: feeds[f"carry/{name}"] for name in dynamics.state_spec})
        obs: Any = {key: feeds[f"obs/{key}"] for key in self.leaves} if self.is_dict else feeds["obs"]
        tokens = self.model.encoder(obs)
        state = dynamics.correct(state, feeds[f"carry/{PREVIOUS}"], tokens, feeds["is_first"], None)
        outputs = self.actor(dynamics.read(state))
        numbers = self.actions.sample(outputs, None)
        after = {**dynamics.stored(state), PREVIOUS: numbers}
        carry = {f"next_carry/{name}": value for name, value in after.items()}
        if isinstance(self.space, BoxSpec):
            return {"actions": within(self.space, scaled(self.space, numbers.reshape(-1, *self.space.shape))), **carry}
        return {"actions": numbers.argmax(-1), "logits": outputs, **carry}


class SequenceModule(ExportedModule):
    """The policy of `dt`: its memory is the window of steps so far, with `reward`, what the last action was rewarded
    with."""

    def __init__(self, policy: SequencePolicy) -> None:
        super().__init__(policy.observation_space, policy.action_space, policy.normalizer)
        self.model, self.scale = policy.network, policy.return_scale
        self.target = policy.target_return / policy.return_scale
        carry = policy.initial_carry(1)
        self.carried = {name: (value.dtype.name, value.shape[1:]) for name, value in carry.items()}

    def forward(self, feeds: dict[str, Tensor]) -> dict[str, Tensor]:
        window, is_first = self.model.window, feeds["is_first"]
        before = {name: feeds[f"carry/{name}"] for name in self.carried}
        length = before["length"].masked_fill(is_first, 0)
        last = before["returns"].gather(1, (length - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        wanted = torch.where(is_first, self.target, last - before[REWARD] / self.scale)
        is_full = length == window
        newest = torch.arange(window) == torch.where(is_full, window - 1, length).unsqueeze(1)  # (N, K)

        def extended(rows: Tensor, value: Tensor) -> Tensor:
            """Rows (N, K, ...) with one more step; a full window loses its oldest one."""
            ones = [1] * (rows.dim() - 2)
            moved = torch.where(is_full.reshape(-1, 1, *ones), rows.roll(-1, 1), rows)
            return torch.where(newest.reshape(-1, window, *ones), value.unsqueeze(1), moved)

        after = {name: extended(before[name], value) for name, value in self.seen(feeds).items()}
        after["returns"] = extended(before["returns"], wanted)
        after["actions"] = extended(before["actions"], torch.zeros_like(before["actions"][:, 0]))
        outputs = self.model(after["returns"], self.window_of(after), after["actions"])
        outputs = torch.where(newest.unsqueeze(2), outputs, 0.0).sum(1)  # those of the newest step
        chosen, taken = self.chosen(outputs, feeds.get(ACTION_MASK))
        after["actions"] = torch.where(newest.unsqueeze(2), taken.unsqueeze(1), after["actions"])
        after |= {"length": (length + 1).clamp(max=window), REWARD: torch.zeros_like(before[REWARD])}
        return {**chosen, **{f"next_carry/{name}": after[name] for name in self.carried}}

    def seen(self, feeds: dict[str, Tensor]) -> dict[str, Tensor]:
        """The newest observations under the names of the memory."""
        if not self.is_dict:
            return {"obs/": feeds["obs"]}
        own = {f"obs/{key}": feeds[f"obs/{key}"] for key in self.leaves}
        return own if self.mask is None else {**own, f"obs/{ACTION_MASK}": feeds[ACTION_MASK]}

    def window_of(self, after: dict[str, Tensor]) -> Any:
        """The observations of the window as the network takes them, (N * K, ...)."""
        rows = {name.removeprefix("obs/"): value for name, value in after.items() if name.startswith("obs/")}
        flat = {key: value.flatten(0, 1) for key, value in rows.items()}
        if not self.is_dict:
            return self.normalized("obs", flat[""])
        return {key: self.normalized(key, value) for key, value in flat.items()}

    def chosen(self, outputs: Tensor, mask: Tensor | None) -> tuple[dict[str, Tensor], Tensor]:
        """What the program gives, and the action as the memory keeps it (N, A)."""
        if isinstance(self.space, BoxSpec):
            return {"actions": within(self.space, scaled(self.space, outputs.reshape(-1, *self.space.shape)))}, outputs
        logits = outputs if mask is None else outputs.masked_fill(mask == 0, MASKED_LOGIT)
        actions = logits.argmax(1)
        return {"actions": actions, "logits": logits}, nn.functional.one_hot(actions, outputs.shape[1]).float()


def greedy_module(policy: object) -> ExportedModule | None:
    """The greedy policy as a module of its own on the CPU; None where it is not made of torch networks."""
    module: ExportedModule
    if isinstance(policy, DreamerPolicy):
        module = LatentModule(policy, policy.learner.actor)
    elif isinstance(policy, SequencePolicy):
        module = SequenceModule(policy)
    elif isinstance(policy, NetworkPolicy) and (parts := policy.torch_parts()) is not None:
        module = GreedyModule(policy, parts)
    else:
        return None
    module = copy.deepcopy(module).to("cpu").requires_grad_(False)
    for tensor in module.parameters():
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)  # may be a view of a long vector
    return module


def program_bytes(module: ExportedModule, meta: Mapping[str, str]) -> bytes:
    """The module as a file of `torch.export`, for batches of any size."""
    feeds = {v.name: torch.from_numpy(np.zeros((3, *v.shape), v.dtype)) for v in module.inputs()}
    if ACTION_MASK in feeds:
        feeds[ACTION_MASK] = torch.ones_like(feeds[ACTION_MASK])
    batch = torch.export.Dim("batch", min=1)
    shapes = ({name: {0: batch} for name in feeds},)
    content = io.BytesIO()
    try:
        with torch.no_grad():
            program = torch.export.export(module, (feeds,), dynamic_shapes=shapes)
    except Exception as error:  # whatever a network of your own raises
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"torch.export cannot follow this network: {type(error).__name__}: {reason}") from error
    torch.export.save(program, content, extra_files={"meta.json": json.dumps(dict(sorted(meta.items())))})
    return content.getvalue()


def program_runner(content: bytes) -> Runner:
    """Such a file as a function from inputs to outputs, in arrays."""
    module = torch.export.load(io.BytesIO(content)).module()

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        with torch.no_grad():
            outputs = module({name: torch.from_numpy(np.array(value)) for name, value in feeds.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    return run
