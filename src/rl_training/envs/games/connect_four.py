"""Connect four in NumPy, turn by turn as PettingZoo's `connect_four_v3`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rl_training.envs.games.board import BoardGame
from rl_training.types import Array

ROWS, COLUMNS = 6, 7
SQUARES = np.array([[1 << bit for bit in range(5 - row, 49, 7)] for row in range(ROWS)])
"""(6, 7): the bit of every square. Columns follow one another, from their lowest squares up, with a bit that is always
0 above each: so a line that leaves the board is no line."""
DIRECTIONS = (1, 7, 6, 8)
"""Distance of the bits of neighbours: upright, level, falling and rising."""


def square(column: int, height: int) -> int:
    """The bit of the square with so many squares below it."""
    return 1 << 7 * column + height


def has_four(pieces: int) -> bool:
    """Whether four of the pieces of a player, given as bits, are in a line."""
    for distance in DIRECTIONS:
        pairs = pieces & pieces >> distance
        if pairs & pairs >> 2 * distance:
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
        self._pieces = [0, 0]
        """The pieces of both players as bits."""
        self._heights = [0] * COLUMNS
        self._mask = np.ones(COLUMNS, np.int8)

    def legal(self) -> Array:
        return self._mask.copy()

    def is_full(self) -> bool:
        return not self._mask.any()

    def place(self, player: int, action: int) -> bool:
        height = self._heights[action]
        self._heights[action] += 1
        self._mask[action] = height < ROWS - 1
        self._pieces[player] |= square(action, height)
        self.planes[player, ROWS - 1 - height, action] = 1
        return has_four(self._pieces[player])

    def text(self) -> str:
        return super().text() + "\n" + " ".join(map(str, range(COLUMNS)))
