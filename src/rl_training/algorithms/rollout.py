"""Rows of a rollout as the on-policy algorithms learn from them: flat, or in pieces for networks with memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from torch import Tensor

from rl_training.models.backbones.memory import MemoryCarry
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.optimization import is_channels_last
from rl_training.models.transfer import to_device
from rl_training.types import Array, Batch, Obs


@dataclass(slots=True)
class Rollout:
    """The valid transitions of a rollout, flat (B, ...), with log-probabilities and values from before the update.

    For networks with memory the rows are sequences: see `Pieces`. Where the critic has a second value head, values and
    returns have two columns (B, 2), those of the environment's rewards and those of an exploration bonus.
    """

    obs: TensorObs
    actions: Tensor
    logprobs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    pieces: Pieces | None = None
    moments: tuple[Tensor, Tensor] | None = None
    """Mean and standard deviation of the advantages of the whole minibatch, where these rows are a shard of it."""

    def __len__(self) -> int:
        return len(self.advantages) if self.pieces is None else self.pieces.count

    def split(self, rng: np.random.Generator, count: int) -> list[Any]:
        """Indices of `count` random minibatches that have every row once."""
        order = to_device(rng.permutation(len(self)), self.advantages.device)
        return list(order.tensor_split(min(count, len(self))))

    def whole(self) -> Rollout:
        """Everything as one minibatch."""
        return self

    def rows(self, index: Tensor) -> Rollout:
        """The rows at `index`, as a minibatch; with memory the pieces at `index`."""
        pieces = self.pieces

        def take(column: Tensor) -> Tensor:
            if pieces is None:
                return take_rows(column, index)
            steps = column.view(pieces.length, pieces.count, *column.shape[1:])
            return steps.index_select(1, index).flatten(0, 1)

        return Rollout(
            {name: take(column) for name, column in self.obs.items()} if isinstance(self.obs, dict) else take(self.obs),
            take(self.actions),
            take(self.logprobs),
            take(self.values),
            take(self.advantages),
            take(self.returns),
            None if pieces is None else pieces.rows(index),
            self.moments,
        )

    def learnt(self) -> Rollout:
        """The rows that are transitions, flat and without their order, as `evaluated` gives them."""
        return self if self.pieces is None else replace(self, pieces=None).rows(self.pieces.valid_rows())


def take_rows(column: Tensor, index: Tensor) -> Tensor:
    """`column[index]`, faster, in the memory format that images have."""
    if is_channels_last(column):
        return column.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return column.index_select(0, index)


@dataclass(frozen=True, slots=True)
class Pieces:
    """A rollout cut into P pieces of L steps for networks with memory; row t * P + p is step t of piece p."""

    carry: MemoryCarry
    """What was remembered when each piece began (P, ...)."""
    is_first: Tensor
    """(L, P), where episodes begin."""
    valid: Tensor
    """(L, P), False for rows that are not transitions; they stay in the sequence and are not learnt from."""

    @property
    def length(self) -> int:
        return self.is_first.shape[0]

    @property
    def count(self) -> int:
        return self.is_first.shape[1]

    def rows(self, index: Tensor) -> Pieces:
        carry = {name: value.index_select(0, index) for name, value in self.carry.items()}
        return Pieces(carry, self.is_first.index_select(1, index), self.valid.index_select(1, index))

    def valid_rows(self) -> Tensor:
        return self.valid.reshape(-1).nonzero().reshape(-1)


def with_edges(batch: Batch, values: Array, edge_values: Array) -> Array:
    """V of every row's true next observation: the row below, or the final one where an episode ended.

    `edge_values` (N + F,) are those of the last and then of the final observations.
    """
    num_envs = values.shape[1]
    next_values = np.concatenate([values[1:], edge_values[None, :num_envs]])
    next_values.reshape(-1)[batch["final_index"]] = edge_values[num_envs:]
    return next_values


def flat_rows(obs: Obs, keep: Array | None = None) -> Any:
    """(T, N, ...) to (T*N, ...) rows for arrays and dicts alike, all rows or those that `keep` marks."""

    def one(value: Array) -> Array:
        rows = value.reshape(-1, *value.shape[2:])
        return rows if keep is None or keep.all() else rows[keep]

    return {name: one(value) for name, value in obs.items()} if isinstance(obs, dict) else one(obs)


def concatenate_rows(first: Obs, second: Obs) -> Obs:
    """Rows of two observations, one after the other."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {name: np.concatenate([first[name], second[name]]) for name in first}
    return np.concatenate([cast(Array, first), cast(Array, second)])
