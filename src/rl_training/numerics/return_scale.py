"""Scale of imagined returns: the range between two percentiles, smoothed over updates.

Advantages of a world model's policy are divided by it, so that one entropy weight fits rewards of any size (Hafner et
al. 2023, arXiv:2301.04104, equation 7).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.types import StateDict

LOW, HIGH = 5.0, 95.0
"""Percentiles whose distance is the range of the returns."""


class ReturnScale:
    """max(floor, EMA of the 95th percentile - EMA of the 5th); each `update` moves both, then gives the scale.

    Both averages start at 0. The reference does not correct that, so for the first few hundred updates the scale is
    smaller than the range; `debias` divides by 1 - (1 - rate)^updates, as Adam does, which helps short runs.

    >>> scale = ReturnScale()
    >>> scale.update(np.arange(0.0, 10.1, 0.1)), round(scale.high, 6)
    (1.0, 0.095)
    """

    def __init__(self, rate: float = 0.01, floor: float = 1.0, *, debias: bool = False) -> None:
        self.rate = rate
        self.floor = floor
        self.debias = debias
        self.low, self.high = 0.0, 0.0
        self.updates = 0

    def update(self, returns: npt.ArrayLike) -> float:
        """Move the averages towards the percentiles of all `returns`, then give the scale."""
        low, high = np.percentile(np.asarray(returns, np.float64), [LOW, HIGH])
        self.low += self.rate * (float(low) - self.low)
        self.high += self.rate * (float(high) - self.high)
        self.updates += 1
        return self.scale

    @property
    def scale(self) -> float:
        """What advantages are divided by."""
        width = self.high - self.low
        if self.debias and self.updates:
            width /= 1.0 - (1.0 - self.rate) ** self.updates
        return max(self.floor, width)

    def state_dict(self) -> StateDict:
        return {"low": self.low, "high": self.high, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.low, self.high = float(state["low"]), float(state["high"])
        self.updates = int(state["updates"])
