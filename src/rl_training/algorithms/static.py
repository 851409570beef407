"""Base of agents that learn nothing: no state, no update."""

from __future__ import annotations

from rl_training.types import Batch, Carry, StateDict, UpdateResult


class StaticAgent:
    """Policy and algorithm in one; a subclass writes `act`."""

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def update(self, batch: Batch) -> UpdateResult:
        return UpdateResult({})

    def observe(self, batch: Batch) -> None:
        """Nothing to observe."""

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Nothing to load."""
