"""Scale of returns for critics that learn normalised values: mean and standard deviation, moving with the returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.types import Array, StateDict

DECAY = 0.99
"""Weight of the past at each rollout: statistics look back over some hundred rollouts."""
SMALLEST_STD = 1e-2
"""Returns that hardly differ are not blown up."""


class ValueScale:
    """Exponential mean and variance of returns, without the bias towards a first value of 0.

    A critic's output n stands for the value n * std + mean. (0, 1) before any data. The variance is kept about the
    mean: a difference of the mean square and the squared mean loses all digits where returns are large and alike.
    """

    def __init__(self) -> None:
        self.mean = self.variance = self.weight = 0.0

    @property
    def std(self) -> float:
        return float(max(np.sqrt(self.variance), SMALLEST_STD)) if self.weight else 1.0

    def update(self, returns: Array) -> None:
        """Move the statistics towards those of the returns of a rollout."""
        if not returns.size:
            return
        values = returns.astype(np.float64)
        moved = moved_scale(self.mean, self.variance, self.weight, float(values.mean()), float(values.var()))
        self.mean, self.variance, self.weight = moved

    def state_dict(self) -> StateDict:
        return {"mean": self.mean, "variance": self.variance, "weight": self.weight}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.mean, self.variance, self.weight = (float(state[name]) for name in ("mean", "variance", "weight"))


def moved_scale(mean: Any, variance: Any, weight: Any, new_mean: Any, new_variance: Any) -> tuple[Any, Any, Any]:
    """(mean, variance, weight) after a rollout with these statistics; numbers of NumPy or JAX.

    The past weighs DECAY * weight and the rollout 1 - DECAY; without a past it is the rollout alone.

    >>> moved_scale(0.0, 0.0, 0.0, 5.0, 4.0)[:2]
    (5.0, 4.0)
    """
    total = DECAY * weight + (1.0 - DECAY)
    share = (1.0 - DECAY) / total
    change = new_mean - mean
    spread = (1.0 - share) * (variance + share * change * change) + share * new_variance
    return mean + share * change, spread, total
