"""Tic-tac-toe from one seat, as `rl_training.envs.games` has it, against an opponent that moves uniformly at random.

A step is the learner's move and the answer to it; the learner takes either seat, drawn for each game.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.envs.games.tictactoe import LINES
from rl_training.jax.types import Array
from rl_training.types import ACTION_MASK, BoxSpec, DictSpec, DiscreteSpec, MultiBinarySpec

SQUARES = 9
BITS = np.dtype(np.int8)


class Board(NamedTuple):
    """Pieces of the learner and of the opponent, (N, 9) bool each, counted by rows."""

    own: Array
    other: Array


class TicTacToe:
    observation_space = DictSpec(
        {
            ACTION_MASK: MultiBinarySpec(SQUARES),
            "observation": BoxSpec(np.zeros((3, 3, 2), BITS), np.ones((3, 3, 2), BITS), BITS),
        }
    )
    action_space = DiscreteSpec(SQUARES)
    max_episode_steps = None

    def init(self, key: Array, n: int) -> Board:
        """Empty boards, and those on which the opponent has begun."""
        draws = jax.random.uniform(key, (n, SQUARES + 1))
        empty = jnp.zeros((n, SQUARES), bool)
        begun = with_piece(empty, draws[:, 1:].argmax(1))
        return Board(empty, begun & (draws[:, :1] < 0.5))

    def obs(self, state: Board) -> dict[str, Array]:
        planes = jnp.stack([state.own, state.other], axis=2).astype(BITS)
        return {"observation": planes.reshape(-1, 3, 3, 2), ACTION_MASK: free(state).astype(BITS)}

    def step(self, state: Board, action: Array, key: Array) -> tuple[Board, Array, Array, Array]:
        """The action must be legal: the mask says which are."""
        left = free(state) & ~with_piece(jnp.zeros_like(state.own), action)
        answer = jnp.where(left, jax.random.uniform(key, left.shape), -1.0).argmax(1)
        return self.play(state, action, answer)

    def play(self, state: Board, action: Array, answer: Array) -> tuple[Board, Array, Array, Array]:
        """The learner's move, and the opponent's answer where the game is not over by then."""
        moved = Board(with_piece(state.own, action), state.other)
        won = has_line(moved.own)
        over = won | ~free(moved).any(1)
        answered = Board(moved.own, with_piece(moved.other, answer))
        lost = ~over & has_line(answered.other)
        after = Board(moved.own, jnp.where(over[:, None], moved.other, answered.other))
        rewards = won.astype(jnp.float32) - lost.astype(jnp.float32)
        terminated = over | lost | ~free(after).any(1)
        return after, rewards, terminated, jnp.zeros_like(terminated)


def free(board: Board) -> Array:
    """(N, 9): squares without a piece."""
    return ~(board.own | board.other)


def with_piece(pieces: Array, square: Array) -> Array:
    """Pieces (N, 9) with one more, on the square (N,)."""
    return pieces | (jnp.arange(SQUARES) == square[:, None])


def has_line(pieces: Array) -> Array:
    """(N,): whether three pieces are in a line."""
    return pieces[:, np.array(LINES)].all(2).any(1)
