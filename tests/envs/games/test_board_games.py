"""The games in NumPy are PettingZoo's, turn by turn; the rules play as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.classic.connect_four import connect_four as connect_four_v3
from pettingzoo.classic.tictactoe import tictactoe as tictactoe_v3

from rl_training.envs.games import catalogue
from rl_training.envs.games.connect_four import ConnectFour
from rl_training.envs.games.rules import careless_tictactoe, connect_four_lookahead, misfit, perfect_tictactoe, random
from rl_training.envs.games.tictactoe import TicTacToe
from rl_training.types import EnvError

PAIRS = {"tictactoe": (TicTacToe, tictactoe_v3), "connect_four": (ConnectFour, connect_four_v3)}


@pytest.mark.parametrize("name", PAIRS)
def test_a_game_is_pettingzoos_turn_by_turn(name: str) -> None:
    ours, theirs = PAIRS[name][0](), PAIRS[name][1].raw_env()
    assert ours.possible_agents == theirs.possible_agents
    for agent in ours.possible_agents:
        assert ours.observation_space(agent) == theirs.observation_space(agent)
        assert ours.action_space(agent) == theirs.action_space(agent)
    rng, ends = np.random.default_rng(3), set()
    for _ in range(60):
        ours.reset()
        theirs.reset()
        while theirs.agents:
            assert list(ours.agents) == list(theirs.agents)
            assert ours.agent_selection == theirs.agent_selection
            found, expected = ours.last(), theirs.last()
            for key, value in expected[0].items():
                assert found[0][key].dtype == value.dtype
                np.testing.assert_array_equal(found[0][key], value)
            assert found[1:4] == expected[1:4]
            for agent in theirs.agents:
                np.testing.assert_array_equal(ours.observe(agent)["action_mask"], theirs.observe(agent)["action_mask"])
            if expected[2]:
                ends.add(expected[1])
                action = None
            else:
                action = int(rng.choice(np.flatnonzero(expected[0]["action_mask"])))
            ours.step(action)
            theirs.step(action)
        assert not ours.agents
    assert {1, -1} <= ends


def test_full_board_of_tictactoe_is_a_draw() -> None:
    game = TicTacToe()
    game.reset()
    for action in (0, 1, 2, 4, 3, 5, 7, 6, 8):
        assert not game.last()[2]
        game.step(action)
    assert game.last()[1:3] == (0.0, True)
    assert game.text() == "X O X\nX O O\nO X X"


def test_illegal_move_is_refused() -> None:
    game = ConnectFour()
    game.reset()
    for _ in range(6):
        game.step(3)
    with pytest.raises(EnvError, match="connect_four: player_0 cannot play 3"):
        game.step(3)


def test_pictures_show_the_pieces() -> None:
    game = TicTacToe("rgb_array")
    game.reset()
    empty = game.render()
    game.step(4)
    assert empty.shape == (144, 144, 3)
    assert (game.render() != empty).any(axis=2).sum() > 500


def board(rows: list[str]) -> Any:
    """Own pieces x, the other's o."""
    marks = np.array([list(row) for row in rows])
    return np.stack([marks == "x", marks == "o"], axis=2).astype(np.int8)


def test_look_ahead_wins_then_blocks_then_draws() -> None:
    rng = np.random.default_rng(0)
    empty = ["......."] * 4
    both = board([*empty, "ooo....", "xxx...."])
    assert {connect_four_lookahead(both, None, rng) for _ in range(20)} == {3}
    block = board([*empty, ".......", "ooo..xx"])
    assert {connect_four_lookahead(block, None, rng) for _ in range(20)} == {3}
    upright = board(["......."] * 2 + ["......."] + ["o......", "o.....x", "o.....x"])
    assert {connect_four_lookahead(upright, None, rng) for _ in range(20)} == {0}
    free = board(["o......", "x......", "o......", "x......", "o......", "x......"])
    assert {connect_four_lookahead(free, None, rng) for _ in range(200)} == {1, 2, 3, 4, 5, 6}


def test_perfect_player_draws_among_its_best_moves() -> None:
    rng = np.random.default_rng(0)
    empty = np.zeros((3, 3, 2), np.int8)
    assert {perfect_tictactoe(empty, None, rng) for _ in range(300)} == set(range(9))  # all first moves draw
    corner = board(["o..", "...", "..."])
    assert {perfect_tictactoe(corner, None, rng) for _ in range(50)} == {4}  # anything but the centre loses


def test_careless_player_plays_every_second_move_at_random() -> None:
    rng = np.random.default_rng(0)
    corner = board(["o..", "...", "..."])
    mask = np.array([0, 1, 1, 1, 1, 1, 1, 1, 1], np.int8)
    drawn = [careless_tictactoe(corner, mask, rng) for _ in range(800)]
    assert set(drawn) == set(range(1, 9))
    assert 400 < drawn.count(4) < 500, "the only move that does not lose: half of the time, and an eighth of the rest"


def test_random_draws_among_legal_moves() -> None:
    rng = np.random.default_rng(0)
    mask = np.array([0, 1, 0, 1], np.int8)
    drawn = [random(None, mask, rng) for _ in range(400)]
    assert set(drawn) == {1, 3}
    assert 150 < drawn.count(1) < 250


def test_rules_refuse_the_boards_of_other_games() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(EnvError, match=r"'perfect_tictactoe' plays tictactoe on boards \(3, 3, 2\), .* \(6, 7, 2\)$"):
        careless_tictactoe(np.zeros((6, 7, 2), np.int8), None, np.random.default_rng(1))
    with pytest.raises(EnvError, match=r"'connect_four_lookahead' plays connect_four .* other observations$"):
        connect_four_lookahead({"a": np.zeros(3), "b": np.zeros(3)}, None, rng)


def test_what_speaks_against_a_rule() -> None:
    board, plain = catalogue.connect_four().observation_space, spaces.Box(0.0, 1.0, (3,))
    assert misfit("random", board) is misfit("connect_four_lookahead", board) is misfit("rule:a:b", plain) is None
    assert "plays tictactoe" in str(misfit("perfect_tictactoe", board))
    assert "no action_mask" in str(misfit("random", plain))
