"""Tic-tac-toe in NumPy, turn by turn as PettingZoo's `tictactoe_v3`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rl_training.envs.games.board import BoardGame
from rl_training.types import Array

LINES = (
    *((0, 1, 2), (3, 4, 5), (6, 7, 8)),
    *((0, 3, 6), (1, 4, 7), (2, 5, 8)),
    *((0, 4, 8), (2, 4, 6)),
)
"""Squares, counted by rows, that win together."""


class TicTacToe(BoardGame):
    """Three in a row on nine squares; action 3 * row + column."""

    shape: ClassVar = (3, 3)
    num_actions: ClassVar = 9
    names: ClassVar = ("player_1", "player_2")
    name: ClassVar = "tictactoe"

    def legal(self) -> Array:
        free: Array = 1 - self.planes.sum(0, dtype=np.int8).reshape(9)
        return free

    def place(self, player: int, action: int) -> bool:
        own = self.planes[player].reshape(9)
        own[action] = 1
        return any(own[a] and own[b] and own[c] for a, b, c in LINES if action in (a, b, c))

    def label(self, row: int, column: int) -> str:
        return str(3 * row + column)
