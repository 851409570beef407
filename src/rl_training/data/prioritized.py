"""The replay buffer that draws by priority: `ReplayBuffer` with `Priorities`, under one name."""

from __future__ import annotations

from typing import Any

from rl_training.data.priorities import Priorities
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.storage import Shapes


class PrioritizedReplayBuffer(ReplayBuffer):
    """Proportional prioritisation; everything else is a `ReplayBuffer` and takes its keywords."""

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
        """How much priorities count: 0 not at all, 1 fully. Holds for the priorities given from now on."""
        return self.priorities.alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self.priorities.alpha = value

    @property
    def beta(self) -> float:
        """How much the weights make up for it: 0 not at all, 1 fully."""
        return self.priorities.beta

    @beta.setter
    def beta(self, value: float) -> None:
        self.priorities.beta = value
