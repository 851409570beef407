"""Options that every replay buffer takes as keywords: n-step returns, priorities, sequences, size in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from rl_training.data.priorities import Priorities
from rl_training.data.storage import DType, Shape

OnMemory = Literal["refuse", "shrink"]


class ReplayKeywords(TypedDict, total=False):
    """The fields of `ReplayOptions` as keyword arguments, for type checkers."""

    n_step: int
    gamma: float | None
    priorities: Priorities | None
    on_memory: OnMemory
    sequence_length: int | None
    carry: Mapping[str, tuple[Shape, DType]]


@dataclass(frozen=True)
class ReplayOptions:
    """How a replay buffer samples, and what it does about a capacity that does not fit into memory."""

    n_step: int = 1
    """Samples are n-step transitions; a row whose n steps are not complete yet cannot be sampled."""
    gamma: float | None = None
    """Discount of n-step rewards; where given, samples carry `discounts`."""
    priorities: Priorities | None = None
    """Sample in proportion to these priorities; None samples uniformly."""
    on_memory: OnMemory = "refuse"
    """`refuse` a capacity that does not fit into memory, or `shrink` it until it does."""
    sequence_length: int | None = None
    """Samples are sequences of this many steps; None samples transitions."""
    carry: Mapping[str, tuple[Shape, DType]] = field(default_factory=dict)
    """Shape and dtype of what is stored of a policy's memory with each step, by name, from the extras `carry/name`."""
