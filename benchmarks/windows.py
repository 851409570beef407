"""Learning curves from training episodes. Standard library only: both sides of a comparison import it."""

from __future__ import annotations

from collections.abc import Iterable


def mean_per_window(ended: Iterable[tuple[int, float]], total: int, windows: int) -> list[list[float]]:
    """(end of window, mean return of the episodes that ended in it) for equal windows of a budget; none if empty.

    >>> mean_per_window([(10, 1.0), (50, 2.0), (60, 4.0), (100, 0.0), (104, 2.0)], total=100, windows=2)
    [[50, 1.5], [100, 2.0]]
    """
    width = total / windows
    sums: dict[int, list[float]] = {}
    for step, value in ended:
        window = min(max(int((step - 1) // width), 0), windows - 1)  # the last rollout may end after the budget
        sums.setdefault(window, []).append(value)
    return [
        [round((window + 1) * width), round(sum(values) / len(values), 3)] for window, values in sorted(sums.items())
    ]
