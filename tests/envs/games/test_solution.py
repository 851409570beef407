"""Tic-tac-toe solved: values known by heart, and best responses to policies whose weakness is known."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from rl_training.envs.games.solution import (
    EMPTY,
    after,
    all_positions,
    best_response,
    has_lost,
    moves_of,
    optimal_moves,
    value,
)

Obs = dict[str, Any]


def uniform(obs: Obs) -> Any:
    mask = obs["action_mask"]
    return mask / mask.sum(1, keepdims=True)


def perfect(obs: Obs) -> Any:
    marks = (obs["observation"][..., 0] - obs["observation"][..., 1]).reshape(-1, 9)
    chances = np.zeros(marks.shape)
    for row, position in enumerate(marks.tolist()):
        moves = list(optimal_moves(tuple(position)))
        chances[row, moves] = 1 / len(moves)
    return chances


def first_free(obs: Obs) -> Any:
    return np.eye(9)[obs["action_mask"].argmax(1)]


def test_values_of_positions() -> None:
    assert value(EMPTY) == 0
    assert value((1, 0, 0, 0, 0, 0, 0, 0, -1)) == 1
    assert value((1, 1, 0, -1, -1, 0, 0, 0, 0)) == 1
    assert value((-1, 0, 0, 0, 1, 0, 0, 0, -1)) == 0
    assert len(all_positions()) == 4520  # 5,478 positions, 958 of them at an end


def test_nobody_wins_against_perfect_play() -> None:
    found = best_response(perfect)
    assert found.moving_first == found.moving_second == found.exploitability == 0.0


def test_a_fixed_order_of_squares_always_loses() -> None:
    assert best_response(first_free).exploitability == 1.0


def test_random_play_is_beaten_as_known() -> None:
    """The best response to uniform play: computed independently, by the plain recursion over all games."""

    found = best_response(uniform)
    assert 0.9 < found.moving_second < found.moving_first < 1.0
    first = max(
        sum(respond(reply, to_move=True) for reply in replies) / len(replies)
        for replies in (opening_replies(move) for move in (0, 1, 4))  # all others are one of these, turned
    )
    assert found.moving_first == pytest.approx(first, abs=1e-12)


@cache
def respond(position: tuple[int, ...], *, to_move: bool) -> float:
    """Value to the one who responds best to uniform play."""
    if has_lost(position):
        return -1.0 if to_move else 1.0
    values = [respond(after(position, move), to_move=not to_move) for move in moves_of(position)]
    if not values:
        return 0.0
    return max(values) if to_move else sum(values) / len(values)


def opening_replies(move: int) -> list[tuple[int, ...]]:
    """Positions after an opening and any answer."""
    position = after(EMPTY, move)
    return [after(position, reply) for reply in moves_of(position)]
