"""Players that follow a rule: random, perfect tic-tac-toe, and a look-ahead of one move for connect four.

A rule is a function (observation, mask, rng) -> action. The observation is that of the agent whose turn it is, without
its action mask, which is an array of 0 and 1 per action or None; every random number comes from `rng`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rl_training.envs.games.board import BoardGame
from rl_training.envs.games.connect_four import COLUMNS, ROWS, SQUARES, ConnectFour, has_four, square
from rl_training.envs.games.solution import optimal_moves
from rl_training.envs.games.tictactoe import TicTacToe
from rl_training.types import ACTION_MASK, Array, EnvError


def random(observation: Any, mask: Array | None, rng: np.random.Generator) -> int:
    """Every legal move with the same probability."""
    if mask is None:
        raise EnvError("the rule 'random' draws among legal moves, and this game has no action mask")
    legal = np.flatnonzero(mask)
    return int(legal[rng.integers(len(legal))])


def check_board(observation: Any, game: type[BoardGame], rule: str) -> None:
    """Refuse the observations of another game than the one that a rule plays."""
    if np.shape(observation) != (*game.shape, 2):
        seen = "other observations" if isinstance(observation, dict) else f"observations {np.shape(observation)}"
        raise EnvError(f"the rule '{rule}' plays {game.name} on boards {(*game.shape, 2)}, and this game has {seen}")


def perfect_tictactoe(observation: Array, mask: Array | None, rng: np.random.Generator) -> int:
    """Every move that keeps the value of the position (a win, else a draw) with the same probability."""
    check_board(observation, TicTacToe, "perfect_tictactoe")
    own, other = observation[..., 0].reshape(9), observation[..., 1].reshape(9)
    moves = optimal_moves(tuple((own - other).tolist()))
    return moves[int(rng.integers(len(moves)))]


def careless_tictactoe(observation: Array, mask: Array | None, rng: np.random.Generator) -> int:
    """Every second move at random, on average, and perfect ones between: it comes to positions that perfect play never
    sees, and wins where the other does not take care there."""
    return (random if rng.random() < 0.5 else perfect_tictactoe)(observation, mask, rng)


def connect_four_lookahead(observation: Array, mask: Array | None, rng: np.random.Generator) -> int:
    """Wins if it can, blocks if it must, else plays any legal move with the same probability."""
    check_board(observation, ConnectFour, "connect_four_lookahead")
    own, other = (SQUARES.reshape(-1) @ observation.reshape(-1, 2)).tolist()
    filled = [(own + other >> 7 * column & 63).bit_count() for column in range(COLUMNS)]
    legal = [column for column in range(COLUMNS) if filled[column] < ROWS]
    for pieces in (own, other):
        hits = [column for column in legal if has_four(pieces | square(column, filled[column]))]
        if hits:
            return hits[int(rng.integers(len(hits)))]
    return legal[int(rng.integers(len(legal)))]


BOARDS: dict[str, type[BoardGame]] = {
    "perfect_tictactoe": TicTacToe,
    "careless_tictactoe": TicTacToe,
    "connect_four_lookahead": ConnectFour,
}
"""Rules that play one game, with that game."""


def misfit(rule: str, space: spaces.Space[Any]) -> str | None:
    """Why a rule of this module cannot play a game with these observations; None where nothing is known against it."""
    seen = space.spaces if isinstance(space, spaces.Dict) else {}
    if rule == "random" and ACTION_MASK not in seen:
        return f"draws among legal moves, and there is no {ACTION_MASK} in the game's observations or infos"
    board = seen["observation"].shape if "observation" in seen else None
    if rule in BOARDS and board != (*BOARDS[rule].shape, 2):
        return f"plays {BOARDS[rule].name}, and this is another game"
    return None
