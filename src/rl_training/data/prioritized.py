"""Prioritised replay buffer: a `ReplayBuffer` with `Priorities`, under one name."""

from __future__ import annotations

from typing import Any

from rl_training.data.priorities import Priorities
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.storage import Shapes


class PrioritizedReplayBuffer(ReplayBuffer):
    """A `ReplayBuffer` with proportional prioritisation; it takes the same keywords, `priorities` excepted."""

    priorities: Priorities

    def __init__(
        self,
        capacity: int,
        obs_shape: Shapes,
        action_shape: Shapes,
        device: Any = None,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        **keywords: Any,
    ) -> None:
        super().__init__(capacity, obs_shape, action_shape, device, priorities=Priorities(alpha, beta), **keywords)

    @property
    def alpha(self) -> float:
        """Prioritisation exponent: 0 is uniform sampling. Applies to priorities set from now on."""
        return self.priorities.alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self.priorities.alpha = value

    @property
    def beta(self) -> float:
        """Importance-sampling exponent: 1 corrects the bias of prioritised sampling fully, 0 not at all."""
        return self.priorities.beta

    @beta.setter
    def beta(self, value: float) -> None:
        self.priorities.beta = value
