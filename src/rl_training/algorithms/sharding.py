"""Batches in shards (`training.shards`): gradients are computed shard by shard and summed in the order of the shards.

A shard's gradient is computed alone, from rows that always have the same shapes, and the sum is always taken in the
same order. So a run has the same bits however many processes share its shards. What concerns the whole batch is
computed from all shards: mean and standard deviation of advantages, weights of shards with fewer rows, logged numbers.

Not here: who has which shard and how they talk, which is in `rl_training.distributed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from rl_training.build_context import Shards
from rl_training.models.transfer import to_device
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.types import Batch, RLTrainingError

if TYPE_CHECKING:
    from rl_training.algorithms.kernel_choice import Kernel
    from rl_training.algorithms.rollout import Rollout

RowsT = TypeVar("RowsT")
REWARD_COLUMNS = ("rewards", "terminated", "truncated", "valid")
"""What the statistics of rewards follow from."""


def use_own_stream(_: np.random.Generator) -> AbstractContextManager[None]:
    """For losses that draw no random numbers."""
    return nullcontext()


@dataclass(frozen=True)
class ShardedRows(Generic[RowsT]):
    """Rows to learn from, shard by shard."""

    parts: Sequence[RowsT]
    """Those of the shards of this process."""
    weights: Sequence[float]
    """Share of every shard of the run in the whole batch."""
    streams: Sequence[np.random.Generator] = ()
    """Generators of the shards of this process, where a loss draws noise."""
    drawing_from: Callable[[np.random.Generator], AbstractContextManager[None]] = use_own_stream
    """Lets the algorithm draw from one of them."""

    def __iter__(self) -> Iterator[RowsT]:
        """Each shard of this process, while the algorithm draws from its stream."""
        if not self.streams:
            yield from self.parts
        for part, rng in zip(self.parts, self.streams, strict=False):
            with self.drawing_from(rng):
                yield part


# -- gradients --------------------------------------------------------------------------------------------------------


class ShardedKernel:
    """Gradients of shards from another kernel, summed in their order; see `kernel_choice.Kernel`.

    What a loss returns is combined likewise: numbers are averaged, rows (..., B) are joined. One exchange per gradient.
    """

    def __init__(self, inner: Kernel, shards: Shards, gradients: Mapping[str, Tensor], *, adds_up: bool) -> None:
        self.inner = inner
        self.shards = shards
        self.gradients = gradients
        """Flat gradient of every network, which its optimiser reads."""
        self.adds_up = adds_up
        """Whether a gradient is added to the one before, as where several minibatches make a step."""

    def gradient(self, name: str, loss: Callable[..., Any], rows: ShardedRows[Any], *inputs: Any) -> Any:
        total = self.gradients[name]
        before = total.clone() if self.adds_up else torch.zeros_like(total)
        own: list[Tensor] = []
        for part in rows:
            total.zero_()
            result = self.inner.gradient(name, loss, part, *inputs)
            own.append(torch.cat([total, *(field.reshape(-1) for field in fields_of(result, total).values())]))
        everything = self.shards.gathered_tensors(own)
        total.copy_(before)
        for weight, vector in zip(rows.weights, everything, strict=True):
            total.add_(vector[: len(total)], alpha=weight)
        return combined(result, total, [vector[len(total) :] for vector in everything], rows.weights)


def fields_of(result: Any, like: Tensor) -> dict[str, Tensor]:
    """What a loss returned (a dict or a NamedTuple of numbers and tensors) as tensors like the gradient's."""
    fields = result if isinstance(result, dict) else result._asdict()
    return {name: torch.as_tensor(value).to(like) for name, value in fields.items() if value is not None}


def combined(result: Any, like: Tensor, shards: Sequence[Tensor], weights: Sequence[float]) -> Any:
    """The result of the whole batch, from one like `result` of every shard, flat."""
    found: dict[str, Tensor] = {}
    begin = 0
    for name, field in fields_of(result, like).items():
        pieces = [shard[begin : begin + field.numel()].view(field.shape) for shard in shards]
        begin += field.numel()
        found[name] = torch.cat(pieces, -1) if field.dim() else weighted(pieces, weights)
    return {**result, **found} if isinstance(result, dict) else result._replace(**found)


def weighted(pieces: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Their weighted sum, in this order."""
    total = pieces[0] * weights[0]
    for piece, weight in zip(pieces[1:], weights[1:], strict=True):
        total = total + piece * weight
    return total


# -- rollouts ---------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """What every process knows of a shard's rollout."""

    values: Tensor
    returns: Tensor
    advantages: Tensor
    valid: Tensor | None
    """For networks with memory (L, P): which rows of the pieces are transitions."""

    @property
    def length(self) -> int:
        return len(self.advantages) if self.valid is None else self.valid.shape[1]

    def transitions(self, rows: Tensor) -> Tensor:
        """Those rows that are transitions."""
        return rows if self.valid is None else rows[self.valid.reshape(-1)]

    def advantages_at(self, index: Tensor) -> Tensor:
        """Advantages of the transitions at `index`; with memory of those in the pieces at `index`."""
        if self.valid is None:
            return self.advantages.index_select(0, index)
        steps = self.advantages.view(self.valid.shape).index_select(1, index)
        return steps[self.valid.index_select(1, index)]


class ShardedRollout:
    """The prepared rollouts of all shards, those of other processes by their columns only.

    Has what updates ask of a `Rollout`: `split`, `rows`, `whole`, and `values` and `returns` of all transitions.
    """

    def __init__(self, shards: Shards, parts: Sequence[Rollout]) -> None:
        self.shards, self.parts = shards, parts
        device = parts[0].advantages.device
        own = [
            (part.values, part.returns, part.advantages, None if part.pieces is None else part.pieces.valid)
            for part in parts
        ]
        arrays = shards.gathered([tuple(None if x is None else x.cpu().numpy() for x in column) for column in own])
        self.columns = [
            Column(*(cast(Tensor, None if x is None else to_device(x, device)) for x in column)) for column in arrays
        ]
        for number, column in enumerate(self.columns):
            if not column.length:
                raise RLTrainingError(
                    f"shard {number} has no transition in this rollout; raise hparams.num_steps or env.num_envs, or "
                    "lower training.shards"
                )
        self.values = torch.cat([column.transitions(column.values) for column in self.columns])
        self.returns = torch.cat([column.transitions(column.returns) for column in self.columns])

    def split(self, rng: np.random.Generator, count: int) -> list[Any]:
        """Indices of `count` random minibatches, with an equal part of every shard in each."""
        count = min([count, *(column.length for column in self.columns)])
        device = self.values.device
        orders = [to_device(rng.permutation(column.length), device) for column in self.columns]
        return list(zip(*(order.tensor_split(count) for order in orders), strict=True))

    def rows(self, index: Any) -> ShardedRows[Rollout]:
        """The rows at `index`, as a minibatch whose advantages are normalised as a whole."""
        advantages = [column.advantages_at(places) for column, places in zip(self.columns, index, strict=True)]
        together = torch.cat(advantages)
        moments = (together.mean(), together.std(correction=1)) if len(together) > 1 else None
        parts = [
            replace(part.rows(index[number]), moments=moments)
            for number, part in zip(self.shards.own, self.parts, strict=True)
        ]
        return ShardedRows(parts, [len(part) / len(together) for part in advantages])

    def learnt(self) -> ShardedRollout:
        """The same: `values` and `returns` are of transitions only."""
        return self

    def whole(self) -> ShardedRows[Rollout]:
        """Everything, in order, as one minibatch."""
        return self.rows([torch.arange(column.length, device=self.values.device) for column in self.columns])


# -- statistics -------------------------------------------------------------------------------------------------------


def joined(shards: Shards, parts: Sequence[Batch], names: Sequence[str]) -> Batch:
    """Columns (T, N) of all environments, in their order, from the batches (T, n) of the shards of this process."""
    columns = shards.gathered([tuple(np.asarray(part[name]) for name in names) for part in parts])
    return {
        name: np.concatenate(pieces, axis=1) for name, pieces in zip(names, zip(*columns, strict=True), strict=True)
    }


def observe_shards(normalizer: ObsNormalizer, shards: Shards, parts: Sequence[Batch]) -> None:
    """Add the observations of all environments to the statistics, shard by shard."""
    for moments in shards.gathered([normalizer.moments(part["obs"], part["valid"]) for part in parts]):
        normalizer.merge(moments)
