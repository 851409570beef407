"""Recurrent memories: gated recurrent unit and long short-term memory.

A sequence is cut where an episode begins in any environment; each piece is one call of torch's own recurrent operation,
with the memory cleared in front of it. Weight names and the order of the gates are those of the JAX twins, so that
checkpoints open in either backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.models.backbones.memory import MemoryCarry, kept
from rl_training.numerics.initial_weights import weight_matrix


def gates(rng: np.random.Generator, inputs: int, size: int, count: int, kind: str) -> nn.Linear:
    """The linear layer of `count` gates of `size` units, each a matrix drawn by itself; biases 0."""
    layer = nn.Linear(inputs, count * size, device="meta").to_empty(device="cpu")
    weights = [weight_matrix(rng, size, inputs, kind, 1.0) for _ in range(count)]
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.concatenate(weights)))
        layer.bias.zero_()
    return layer


@dataclass
class RecurrentTrace:
    """The states along a sequence, (T, N, H) by name; found only where they are asked for."""

    final: MemoryCarry
    walk: Callable[[], MemoryCarry]

    @cached_property
    def states(self) -> MemoryCarry:
        return self.walk()

    def after(self, rows: Tensor) -> MemoryCarry:
        return {name: state.flatten(0, 1)[rows] for name, state in self.states.items()}

    def last(self) -> MemoryCarry:
        return self.final


def unbroken(is_first: Tensor) -> list[tuple[int, int]]:
    """The pieces [start, end) of a sequence (T, N) inside of which no episode begins."""
    starts = [0, *(is_first[1:].any(1).nonzero().flatten() + 1).tolist()]
    return list(zip(starts, [*starts[1:], len(is_first)], strict=True))


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
        weight, shape = self.hidden.weight, (num_envs, self.out_features)
        # a tensor for each part: collectors write into them in place
        return {name: torch.zeros(shape, dtype=weight.dtype, device=weight.device) for name in self.names}

    def step(self, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> tuple[Tensor, MemoryCarry]:
        state = self.cell(self.input(x), kept(carry, is_first))
        return state[self.names[0]], state

    def piece(self, x: Tensor, state: MemoryCarry) -> tuple[Tensor, MemoryCarry]:
        """Steps (T, N, F) in which no episode begins: the features of all of them and the state after the last."""
        raise NotImplementedError

    def follow(self, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> tuple[Tensor, RecurrentTrace]:
        state, pieces = carry, []
        for start, end in unbroken(is_first):
            features, state = self.piece(x[start:end], kept(state, is_first[start]))
            pieces.append(features)
        features, with_gradients = torch.cat(pieces), torch.is_grad_enabled()

        def walk() -> MemoryCarry:
            with torch.set_grad_enabled(with_gradients):  # as in this pass, whenever the states are asked for
                return self.states(features, x, carry, is_first)

        return features, RecurrentTrace(state, walk)

    def states(self, features: Tensor, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> MemoryCarry:
        """The states after every step of a sequence that was followed; here the features are all that is remembered."""
        return {self.names[0]: features}

    def weights(self) -> list[Tensor]:
        """As torch's operations take them."""
        return [self.input.weight, self.hidden.weight, self.input.bias, self.hidden.bias]


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

    def piece(self, x: Tensor, state: MemoryCarry) -> tuple[Tensor, MemoryCarry]:
        features, hidden = torch.gru(x, state["hidden"][None], self.weights(), True, 1, 0.0, False, False, False)
        return features, {"hidden": hidden[0]}


class LSTM(RecurrentMemory):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order input, forget, cell, output."""

    names = ("hidden", "cell")
    gate_count = 4

    def cell(self, seen: Tensor, state: MemoryCarry) -> MemoryCarry:
        enter, forget, new, leave = (seen + self.hidden(state["hidden"])).chunk(4, 1)
        cell = torch.sigmoid(forget) * state["cell"] + torch.sigmoid(enter) * torch.tanh(new)
        return {"hidden": torch.sigmoid(leave) * torch.tanh(cell), "cell": cell}

    def piece(self, x: Tensor, state: MemoryCarry) -> tuple[Tensor, MemoryCarry]:
        before = (state["hidden"][None], state["cell"][None])
        features, hidden, cell = torch.lstm(x, before, self.weights(), True, 1, 0.0, False, False, False)
        return features, {"hidden": hidden[0], "cell": cell[0]}

    def states(self, features: Tensor, x: Tensor, carry: MemoryCarry, is_first: Tensor) -> MemoryCarry:
        """torch's operation gives the cells after the last step only, so this walks step by step."""
        steps = []
        for seen, begins in zip(self.input(x), is_first, strict=True):
            carry = self.cell(seen, kept(carry, begins))
            steps.append(carry)
        return {name: torch.stack([state[name] for state in steps]) for name in self.names}
