"""A causal transformer as a memory: attention over the last `window` inputs of the episode.

The carry is the last raw inputs and how many of them belong to the running episode; features are computed from it anew,
so gradients reach every input of the window and nothing that depends on old weights is stored. With several layers a
feature depends on `layers * (window - 1)` earlier inputs, and that many are carried: `step` and `follow` then agree.
Positions are relative: a learnt bias per head and distance, so an episode may have any length. Queries look at their
own step and the `window - 1` before it within one episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.models.backbones.memory import MemoryCarry
from rl_training.models.initialization import linear
from rl_training.types import ConfigError


@dataclass(frozen=True)
class WindowTrace:
    """Inputs with those carried in front, and the number of the episode that each belongs to."""

    inputs: Tensor
    """(K + T, N, F), K carried ones first."""
    ages: Tensor
    """(K + T, N) steps since the episode began, -1 where there is none."""
    reach: int

    def after(self, rows: Tensor) -> MemoryCarry:
        num_envs = self.inputs.shape[1]
        time, env = rows // num_envs, rows % num_envs
        window = time[:, None] + 1 + torch.arange(self.reach, device=rows.device)  # (B, K)
        inputs, ages = self.inputs[window, env[:, None]], self.ages[window, env[:, None]]
        return _masked(inputs, ages)

    def last(self) -> MemoryCarry:
        tail = slice(len(self.inputs) - self.reach, None)
        return _masked(self.inputs[tail].transpose(0, 1), self.ages[tail].transpose(0, 1))


def _masked(inputs: Tensor, ages: Tensor) -> MemoryCarry:
    """A carry (B, K, F) of the running episode alone: what lies before its first step is zero and has age -1."""
    newest = ages[:, -1:]
    distance = torch.arange(ages.shape[1] - 1, -1, -1, device=ages.device)
    own = (ages >= 0) & (newest - distance == ages)
    return {"inputs": inputs.masked_fill(~own[..., None], 0.0), "ages": ages.masked_fill(~own, -1)}


class Transformer(nn.Module):
    """`layers` blocks of attention and a feed-forward network over an embedding of the inputs."""

    def __init__(
        self,
        inputs: int,
        size: int,
        rng: np.random.Generator,
        *,
        layers: int = 1,
        heads: int = 2,
        window: int = 32,
        gating: bool = False,
        kind: str = "orthogonal",
    ) -> None:
        super().__init__()
        if size % heads:
            raise ConfigError(f"memory: size {size} is not a multiple of heads {heads}")
        self.out_features = size
        self.inputs = inputs
        self.reach = max(1, layers * (window - 1))
        """Earlier inputs that a feature can depend on."""
        self.embed = linear(rng, inputs, size, kind=kind, gain=1.0)
        self.blocks = nn.ModuleList(Block(size, heads, window, rng, gating=gating, kind=kind) for _ in range(layers))
        self.norm = nn.LayerNorm(size)

    def initial_carry(self, num_envs: int) -> MemoryCarry:
        weight = self.embed.weight
        return {
            "inputs": torch.zeros(num_envs, self.reach, self.inputs, dtype=weight.dtype, device=weight.device),
            "ages": torch.full((num_envs, self.reach), -1, dtype=torch.int64, device=weight.device),
        }

    def step(self, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> tuple[Tensor, MemoryCarry]:
        features, trace = self.follow(x[None], carry, is_first[None])
        return features[0], trace.last()

    def follow(self, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> tuple[Tensor, WindowTrace]:
        begins_now = is_first[0][:, None]
        carried = carry["inputs"].masked_fill(begins_now[..., None], 0.0).transpose(0, 1)  # (K, N, F)
        before = carry["ages"].masked_fill(begins_now, -1).transpose(0, 1)  # (K, N)
        age, ages = before[-1], []
        for begins in is_first:
            age = torch.where(begins, torch.zeros_like(age), age + 1)
            ages.append(age)
        inputs = torch.cat([carried, x])
        trace = WindowTrace(inputs, torch.cat([before, torch.stack(ages)]), self.reach)
        hidden = self.embed(inputs).transpose(0, 1)  # (N, K + T, H)
        episode = _episodes(trace.ages).transpose(0, 1)  # (N, K + T)
        for block in self.blocks:
            hidden = block(hidden, episode)
        return self.norm(hidden[:, self.reach :]).transpose(0, 1), trace

    def whole(self, x: Tensor, episode: Tensor) -> Tensor:
        """Features (N, S, H) of inputs (N, S, F) that nothing comes before; equal numbers in `episode` (N, S) are
        steps of one episode."""
        hidden = self.embed(x)
        for block in self.blocks:
            hidden = block(hidden, episode)
        return cast(Tensor, self.norm(hidden))


def _episodes(ages: Tensor) -> Tensor:
    """Numbers that tell episodes apart: the index of their first step, and a negative one of its own for no input."""
    index = torch.arange(len(ages), device=ages.device)[:, None]
    return torch.where(ages >= 0, index - ages, -1 - index - len(ages))


class Block(nn.Module):
    """Pre-norm attention within a window and an episode, then two linear layers."""

    def __init__(
        self, size: int, heads: int, window: int, rng: np.random.Generator, *, gating: bool, kind: str
    ) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm_attention, self.norm_feed = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query_key_value = linear(rng, size, 3 * size, kind=kind, gain=1.0)
        self.output = linear(rng, size, size, kind=kind, gain=1.0)
        self.widen = linear(rng, size, 2 * size, kind=kind, gain=2.0**0.5)
        self.narrow = linear(rng, 2 * size, size, kind=kind, gain=1.0)
        self.distance_bias = nn.Parameter(torch.zeros(heads, window))
        self.gates = nn.ModuleList([Gate(size, rng, kind), Gate(size, rng, kind)]) if gating else None

    def forward(self, x: Tensor, episode: Tensor) -> Tensor:
        attended = self.attend(self.norm_attention(x), episode)
        x = x + attended if self.gates is None else self.gates[0](x, torch.relu(attended))
        fed = self.narrow(torch.relu(self.widen(self.norm_feed(x))))
        return cast(Tensor, x + fed if self.gates is None else self.gates[1](x, torch.relu(fed)))

    def attend(self, x: Tensor, episode: Tensor) -> Tensor:
        """Attention (N, S, H) of every step to those of its window that belong to the same episode."""
        rows, steps, size = x.shape
        query, key, value = self.query_key_value(x).view(rows, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        index = torch.arange(steps, device=x.device)
        distance = index[:, None] - index[None, :]  # (S, S)
        near = (distance >= 0) & (distance < self.window)
        allowed = near & (episode[:, :, None] == episode[:, None, :])  # (N, S, S)
        bias = self.distance_bias[:, distance.clamp(0, self.window - 1)]  # (heads, S, S)
        scores = query @ key.transpose(-1, -2) / (size // self.heads) ** 0.5 + bias
        weights = scores.masked_fill(~allowed[:, None], -torch.inf).softmax(-1)
        return cast(Tensor, self.output((weights @ value).transpose(1, 2).reshape(rows, steps, size)))


class Gate(nn.Module):
    """The gate of GTrXL (Parisotto et al. 2019, arXiv:1910.06764): a GRU between the stream and what a layer adds.

    Its bias keeps the stream almost unchanged at first, so that a fresh transformer is nearly memoryless.
    """

    def __init__(self, size: int, rng: np.random.Generator, kind: str) -> None:
        super().__init__()
        self.added = linear(rng, size, 3 * size, kind=kind, gain=1.0)
        self.stream = linear(rng, size, 2 * size, kind=kind, gain=1.0)
        self.candidate = linear(rng, size, size, kind=kind, gain=1.0)
        with torch.no_grad():
            self.added.bias[size : 2 * size] = -2.0

    def forward(self, stream: Tensor, added: Tensor) -> Tensor:
        reset_added, update_added, new_added = self.added(added).chunk(3, -1)
        reset, update = self.stream(stream).chunk(2, -1)
        new = torch.tanh(new_added + self.candidate(torch.sigmoid(reset_added + reset) * stream))
        return torch.lerp(stream, new, torch.sigmoid(update_added + update))
