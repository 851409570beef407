"""Boards as text and as pictures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rl_training.types import Array

SQUARE = 48
"""Pixels of a square."""
COLOURS = np.array([[222, 184, 135], [178, 34, 34], [25, 25, 112]], np.uint8)
"""Board, pieces of the first player, pieces of the second."""


def board_text(planes: Array, label: Callable[[int, int], str]) -> str:
    """Rows of X, O and the labels of free squares."""
    rows, columns = planes.shape[1:]

    def mark(row: int, column: int) -> str:
        return "X" if planes[0, row, column] else "O" if planes[1, row, column] else label(row, column)

    return "\n".join(" ".join(mark(row, column) for column in range(columns)) for row in range(rows))


def board_picture(planes: Array) -> Array:
    """(height, width, 3) uint8: discs on squares."""
    places = np.arange(SQUARE) - (SQUARE - 1) / 2
    disc = places[:, None] ** 2 + places[None, :] ** 2 <= (0.4 * SQUARE) ** 2
    owner = planes[0] + 2 * planes[1]
    picture = np.kron(owner, disc.astype(np.int64))
    return COLOURS[picture]
