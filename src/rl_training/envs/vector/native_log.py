"""Resume of a native vector environment that cannot be saved: its sub-environments are replayed from a log.

All sub-environments step together, but each has its own last seeded reset. The log therefore keeps the actions of all
since the oldest of these, and a replay is aligned at its end: a sub-environment that has taken k steps since its reset
is reset with its seed k steps before the end; what it does before that does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rl_training.types import Array, StateDict

FIRST_CAPACITY = 64


class NativeLog:
    """The seed of each sub-environment's last seeded reset, and the actions executed since."""

    def __init__(self, num_envs: int, action_shape: tuple[int, ...], action_dtype: np.dtype[Any]) -> None:
        self.seeds = np.zeros(num_envs, np.int64)
        self.lengths = np.zeros(num_envs, np.int64)
        """Steps since that reset, (N,)."""
        self._actions: Array = np.zeros((FIRST_CAPACITY, num_envs, *action_shape), action_dtype)
        self._stop = 0

    def begin(self, rows: Array, seeds: Array) -> None:
        """The sub-environments `rows` (a mask) were reset with these seeds, one for each of them."""
        self.seeds[rows] = seeds
        self.lengths[rows] = 0

    def append(self, actions: Array) -> None:
        """All sub-environments took a step."""
        if self._stop == len(self._actions):
            kept = self.actions()
            room = np.zeros((2 * max(len(kept), FIRST_CAPACITY), *kept.shape[1:]), kept.dtype)
            room[: len(kept)] = kept
            self._actions, self._stop = room, len(kept)
        self._actions[self._stop] = actions
        self._stop += 1
        self.lengths += 1

    def actions(self) -> Array:
        """(L, N, ...) the actions since the oldest seeded reset, those of every sub-environment aligned at the end."""
        longest = int(self.lengths.max())
        return self._actions[self._stop - longest : self._stop]

    def state_dict(self) -> StateDict:
        actions = self.actions().copy()
        for row, length in enumerate(self.lengths):
            actions[: len(actions) - length, row] = 0  # from before its reset, so without effect
        return {"seeds": self.seeds.copy(), "lengths": self.lengths.copy(), "actions": actions}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.seeds, self.lengths = np.array(state["seeds"]), np.array(state["lengths"])
        self._actions = np.array(state["actions"])
        self._stop = len(self._actions)

    def replay(self, reset: Callable[[Array, Array], Any], step: Callable[[Array], Any]) -> Any:
        """Play the log in a fresh vector environment; the result of the last call.

        `reset(rows, seeds)` resets the sub-environments of a mask, `step(actions)` steps all.
        """
        everywhere = np.ones(len(self.seeds), bool)
        result = None if self.lengths.min() == self.lengths.max() else reset(everywhere, self.seeds)
        actions = self.actions()
        for before_end in range(len(actions), -1, -1):
            rows = self.lengths == before_end
            if rows.any():
                result = reset(rows, self.seeds[rows])
            if before_end:
                result = step(actions[len(actions) - before_end])
        return result
