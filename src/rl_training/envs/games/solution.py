"""Tic-tac-toe solved: the value of every position, and the best response to any policy.

A position is a tuple of nine numbers as the player to move sees it: 1 for its own marks, -1 for the other's, 0 free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from rl_training.envs.games.tictactoe import LINES
from rl_training.types import ACTION_MASK, Array

Position = tuple[int, ...]
EMPTY: Position = (0,) * 9
Probabilities = Callable[[dict[str, Array]], Array]
"""Observations {observation: (S, 3, 3, 2), action_mask: (S, 9)} to the probabilities of moves (S, 9)."""


def has_lost(position: Position) -> bool:
    """Whether the player to move has lost: the other one has three in a row."""
    return any(position[a] == position[b] == position[c] == -1 for a, b, c in LINES)


def moves_of(position: Position) -> list[int]:
    """Legal moves; none where the game is over."""
    return [] if has_lost(position) else [square for square in range(9) if position[square] == 0]


def after(position: Position, move: int) -> Position:
    """The position after a move, as the other player sees it."""
    return tuple(-1 if square == move else -mark for square, mark in enumerate(position))


@cache
def value(position: Position) -> int:
    """1 if the player to move wins with best play of both, 0 for a draw, -1 if it loses.

    >>> value(EMPTY)
    0
    """
    if has_lost(position):
        return -1
    return max((-value(after(position, move)) for move in moves_of(position)), default=0)


@cache
def optimal_moves(position: Position) -> tuple[int, ...]:
    """Moves that reach the value of the position.

    >>> optimal_moves((1, 1, 0, -1, -1, 0, 0, 0, 0))
    (2,)
    """
    best = value(position)
    return tuple(move for move in moves_of(position) if -value(after(position, move)) == best)


@cache
def all_positions() -> tuple[Position, ...]:
    """Positions that can be reached and in which a move is due, as the player to move sees them."""
    found, open_ones = {EMPTY}, [EMPTY]
    while open_ones:
        position = open_ones.pop()
        for move in moves_of(position):
            following = after(position, move)
            if following not in found:
                found.add(following)
                open_ones.append(following)
    return tuple(sorted(position for position in found if moves_of(position)))


@dataclass(frozen=True)
class BestResponse:
    """What an opponent who knows the policy earns on average, from -1 to 1; 0 is what perfect play allows."""

    moving_first: float
    moving_second: float

    @property
    def exploitability(self) -> float:
        """Mean over both seats; 0 exactly where nobody can win against the policy."""
        return (self.moving_first + self.moving_second) / 2


def best_response(probabilities: Probabilities) -> BestResponse:
    """The exact value of the best response to a policy that moves with these probabilities."""
    positions = all_positions()
    marks = np.array(positions, np.int8)
    boards = np.stack([marks == 1, marks == -1], axis=2).astype(np.int8).reshape(-1, 3, 3, 2)
    chosen = probabilities({"observation": boards, ACTION_MASK: (marks == 0).astype(np.int8)})
    policy = dict(zip(positions, chosen.tolist(), strict=True))

    @cache
    def responder(position: Position) -> float:
        """The value to the responder where it is to move."""
        if has_lost(position):
            return -1.0
        return max((mover(after(position, move)) for move in moves_of(position)), default=0.0)

    @cache
    def mover(position: Position) -> float:
        """The value to the responder where the policy is to move."""
        if has_lost(position):
            return 1.0
        moves = moves_of(position)
        if not moves:
            return 0.0
        share = policy[position]
        return float(sum(share[move] * responder(after(position, move)) for move in moves))

    return BestResponse(responder(EMPTY), mover(EMPTY))
