"""The contract of networks with memory: `initial_carry`, `step` for acting and `follow` for learning.

A memory stands behind an encoder and turns a row of its outputs into features that depend on the episode so far:

    carry = memory.initial_carry(N)                          # all zeros: nothing remembered
    features, carry = memory.step(x, carry, is_first)        # acting: x (N, F), is_first (N,)
    features, trace = memory.follow(x, carry, is_first)      # learning: x (T, N, F), is_first (T, N)

`follow` gives what T calls of `step` give, with gradients through all of them. Where `is_first` is set, what came
before is forgotten: it changes no bit of what follows. `trace` knows the carry after every row: for values of
observations that follow a row but are not the next one (the final observation of an episode), and for the next piece
of a rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from rl_training.models.backbones.mlp import TensorObs

MemoryCarry = dict[str, Tensor]
"""What is remembered, by name: tensors with a row per environment."""


class Trace(Protocol):
    """The carries along a sequence that was followed."""

    def after(self, rows: Tensor) -> MemoryCarry:
        """The carry after each of these rows, flat indices into (T, N)."""
        ...

    def last(self) -> MemoryCarry:
        """The carry after the last step of every environment."""
        ...


class Memory(Protocol):
    """What GRU, LSTM and transformer have in common."""

    out_features: int

    def initial_carry(self, num_envs: int) -> MemoryCarry: ...
    def step(self, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> tuple[Tensor, MemoryCarry]: ...
    def follow(self, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> tuple[Tensor, Trace]: ...


@runtime_checkable
class Remembering(Protocol):
    """A backbone with memory: `embed` sees single observations, `memory` what they become along an episode."""

    memory: Memory

    def embed(self, obs: TensorObs) -> Tensor: ...


def prefixed(carries: Mapping[str, MemoryCarry]) -> MemoryCarry:
    """The carries of several memories as one: `{"actor": {"hidden": h}}` becomes `{"actor/hidden": h}`."""
    return {f"{owner}/{name}": value for owner, carry in carries.items() for name, value in carry.items()}


def carry_of(carry: MemoryCarry, owner: str) -> MemoryCarry:
    """The part of a joint carry that belongs to one memory."""
    start = f"{owner}/"
    return {name.removeprefix(start): value for name, value in carry.items() if name.startswith(start)}


def kept(carry: MemoryCarry, is_first: Tensor) -> MemoryCarry:
    """The carry with the rows of episodes that begin set to exactly zero, also where they held NaN."""
    return {
        name: value.masked_fill(is_first.reshape(-1, *(1,) * (value.dim() - 1)), 0) for name, value in carry.items()
    }
