"""Connect four in NumPy, turn by turn as PettingZoo's `connect_four_v3`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rl_training.envs.games.board import BoardGame
from rl_training.types import Array

ROWS, COLUMNS = 6, 7
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))


def runs_through(own: Array, row: int, column: int) -> bool:
    """Whether four pieces of a plane (6, 7), one of them at (row, column), are in a line."""
    for down, right in DIRECTIONS:
        count = 1
        for sign in (1, -1):
            r, c = row + sign * down, column + sign * right
            while 0 <= r < ROWS and 0 <= c < COLUMNS and own[r][c]:
                count += 1
                r, c = r + sign * down, c + sign * right
        if count >= 4:
            return True
    return False


class ConnectFour(BoardGame):
    """Four in a line on seven columns of six squares; the action is the column, row 0 is the top."""

    shape: ClassVar = (ROWS, COLUMNS)
    num_actions: ClassVar = COLUMNS
    names: ClassVar = ("player_0", "player_1")
    name: ClassVar = "connect_four"

    def reset(self, seed: int | None = None, options: dict[str, object] | None = None) -> None:
        super().reset(seed, options)
        self._owned = [[[0] * COLUMNS for _ in range(ROWS)] for _ in range(2)]
        """The planes as lists, which Python reads faster than arrays."""
        self._heights = [0] * COLUMNS
        self._mask = np.ones(COLUMNS, np.int8)

    def legal(self) -> Array:
        return self._mask.copy()

    def is_full(self) -> bool:
        return not self._mask.any()

    def place(self, player: int, action: int) -> bool:
        row = ROWS - 1 - self._heights[action]
        self._heights[action] += 1
        self._mask[action] = row > 0
        self._owned[player][row][action] = 1
        self.planes[player, row, action] = 1
        return runs_through(self._owned[player], row, action)  # type: ignore[arg-type]

    def text(self) -> str:
        return super().text() + "\n" + " ".join(map(str, range(COLUMNS)))
