"""Scale of returns for critics that learn normalised values: mean and standard deviation, moving with the returns."""

from __future__ import annotations

import numpy as np

from rl_training.types import Array, StateDict

DECAY = 0.99
"""Weight of the past at each rollout: statistics look back over some hundred rollouts."""
SMALLEST_STD = 1e-2
"""Returns that hardly differ are not blown up."""


class ValueScale:
    """Exponential means of returns and their squares, without the bias towards their first value of 0.

    A critic's output n stands for the value n * std + mean. (0, 1) before any data.
    """

    def __init__(self) -> None:
        self.first = self.second = self.weight = 0.0

    @property
    def mean(self) -> float:
        return self.first / self.weight if self.weight else 0.0

    @property
    def std(self) -> float:
        if not self.weight:
            return 1.0
        variance = self.second / self.weight - self.mean**2
        return float(max(np.sqrt(max(variance, 0.0)), SMALLEST_STD))

    def update(self, returns: Array) -> None:
        """Move the statistics towards those of the returns of a rollout."""
        if not returns.size:
            return
        values = returns.astype(np.float64)
        self.first = DECAY * self.first + (1.0 - DECAY) * float(values.mean())
        self.second = DECAY * self.second + (1.0 - DECAY) * float(np.square(values).mean())
        self.weight = DECAY * self.weight + (1.0 - DECAY)

    def state_dict(self) -> StateDict:
        return {"first": self.first, "second": self.second, "weight": self.weight}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.first, self.second, self.weight = (float(state[name]) for name in ("first", "second", "weight"))
