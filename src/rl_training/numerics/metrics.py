"""Metrics of several updates as those of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl_training.types import Metrics


def average(values: Sequence[Any]) -> Any:
    """Sum, in order, over count; for plain numbers, arrays and tensors alike."""
    return sum(values[1:], values[0]) / len(values)


def mean_metrics(records: Sequence[Mapping[str, Any]], mean: Callable[[Sequence[Any]], Any] = average) -> Metrics:
    """The mean of every metric over the updates that reported it.

    >>> mean_metrics([{"loss": 2.0}, {"loss": 4.0, "actor_loss": 1.0}])
    {'loss': 3.0, 'actor_loss': 1.0}
    """
    names = {name: None for record in records for name in record}
    return {name: mean([record[name] for record in records if name in record]) for name in names}
