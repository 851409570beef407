"""Recurrent memories: gated recurrent unit and long short-term memory.

The products with the inputs of a whole sequence are one matrix product; only what depends on the step before runs step
by step, with the memory cleared where an episode begins: `cell` is one such step, `recurrence.py` a whole sequence with
its gradient. Weight names and the order of the gates are those of the JAX twins, so that checkpoints open in either
backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.models.backbones.memory import MemoryCarry, kept
from rl_training.models.backbones.recurrence import GRUSequence, LSTMSequence
from rl_training.numerics.initial_weights import weight_matrix


def gates(rng: np.random.Generator, inputs: int, size: int, count: int, kind: str) -> nn.Linear:
    """The linear layer of `count` gates of `size` units, each a matrix drawn by itself; biases 0."""
    layer = nn.Linear(inputs, count * size, device="meta").to_empty(device="cpu")
    weights = [weight_matrix(rng, size, inputs, kind, 1.0) for _ in range(count)]
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.concatenate(weights)))
        layer.bias.zero_()
    return layer


@dataclass(frozen=True)
class RecurrentTrace:
    """The state after every step, (T, N, H) by name."""

    states: MemoryCarry

    def after(self, rows: Tensor) -> MemoryCarry:
        return {name: state.flatten(0, 1)[rows] for name, state in self.states.items()}

    def last(self) -> MemoryCarry:
        return {name: state[-1] for name, state in self.states.items()}


class RecurrentMemory(nn.Module):
    """What both cells share: weights and shapes. A cell says how one step goes, and how a sequence of them."""

    names: tuple[str, ...]
    """Parts of the state; the first one is also the features."""
    gate_count: int

    def __init__(self, inputs: int, size: int, rng: np.random.Generator, kind: str = "orthogonal") -> None:
        super().__init__()
        self.out_features = size
        self.input = gates(rng, inputs, size, self.gate_count, kind)
        self.hidden = gates(rng, size, size, self.gate_count, kind)

    def cell(self, seen: Tensor, state: MemoryCarry) -> MemoryCarry:
        """One step: the products `seen` (N, gates) of the inputs and the state before to the state after."""
        raise NotImplementedError

    def initial_carry(self, num_envs: int) -> MemoryCarry:
        zeros = torch.zeros(num_envs, self.out_features, dtype=self.hidden.weight.dtype)
        return dict.fromkeys(self.names, zeros.to(self.hidden.weight.device))

    def step(self, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> tuple[Tensor, MemoryCarry]:
        state = self.cell(self.input(x), kept(carry, is_first))
        return state[self.names[0]], state

    def sequence(self, seen: Tensor, carry: MemoryCarry, is_first: Tensor) -> MemoryCarry:
        """`cell` along the products `seen` (T, N, gates) of a sequence: the states after every step."""
        raise NotImplementedError

    def follow(self, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> tuple[Tensor, RecurrentTrace]:
        states = self.sequence(self.input(x), carry, is_first)
        return states[self.names[0]], RecurrentTrace(states)


class GRU(RecurrentMemory):
    """Gated recurrent unit (Cho et al. 2014, arXiv:1406.1078), gates in the order reset, update, new."""

    names = ("hidden",)
    gate_count = 3

    def cell(self, seen: Tensor, state: MemoryCarry) -> MemoryCarry:
        before = state["hidden"]
        seen_reset, seen_update, seen_new = seen.chunk(3, 1)
        reset, update, new = self.hidden(before).chunk(3, 1)
        candidate = torch.tanh(seen_new + torch.sigmoid(seen_reset + reset) * new)
        return {"hidden": torch.lerp(candidate, before, torch.sigmoid(seen_update + update))}

    def sequence(self, seen: Tensor, carry: MemoryCarry, is_first: Tensor) -> MemoryCarry:
        layer = self.hidden
        follow = cast(Callable[..., Tensor], GRUSequence.apply)
        return {"hidden": follow(seen, layer.weight, layer.bias, carry["hidden"], is_first)}


class LSTM(RecurrentMemory):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order input, forget, cell, output."""

    names = ("hidden", "cell")
    gate_count = 4

    def cell(self, seen: Tensor, state: MemoryCarry) -> MemoryCarry:
        enter, forget, new, leave = (seen + self.hidden(state["hidden"])).chunk(4, 1)
        cell = torch.sigmoid(forget) * state["cell"] + torch.sigmoid(enter) * torch.tanh(new)
        return {"hidden": torch.sigmoid(leave) * torch.tanh(cell), "cell": cell}

    def sequence(self, seen: Tensor, carry: MemoryCarry, is_first: Tensor) -> MemoryCarry:
        weight, bias = self.hidden.weight, self.hidden.bias
        follow = cast(Callable[..., tuple[Tensor, Tensor]], LSTMSequence.apply)
        hidden, cell = follow(seen, weight, bias, carry["hidden"], carry["cell"], is_first)
        return {"hidden": hidden, "cell": cell}
