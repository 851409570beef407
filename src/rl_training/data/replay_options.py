"""Options that every replay buffer takes as keywords: n-step returns, priorities, and a capacity that may shrink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from rl_training.data.priorities import Priorities

OnMemory = Literal["refuse", "shrink"]


class ReplayKeywords(TypedDict, total=False):
    """The fields of `ReplayOptions` as keyword arguments, for type checkers."""

    n_step: int
    gamma: float | None
    priorities: Priorities | None
    on_memory: OnMemory


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
