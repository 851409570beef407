"""A seat at a game: whose transitions it shows, who plays the others, and how an open game goes on after a resume."""

from __future__ import annotations

import copy
from typing import Any

import game_cases
import numpy as np
import pytest
from game_cases import AtOnce, LastOneOut

from rl_training.envs import EnvThunk, check_env, make_env
from rl_training.envs.episode_log import same_bits
from rl_training.envs.games.catalogue import GAMES, tictactoe
from rl_training.envs.games.players import Lineup, RulePlayer, only
from rl_training.envs.games.seat import Seat, seat_of
from rl_training.envs.games.tictactoe import TicTacToe
from rl_training.envs.replay_check import replay_difference
from rl_training.types import EnvError

STAY, LEAVE = (f"rule:{game_cases.__name__}:{name}" for name in ("stay", "leave"))


def seated(seat: str, *rules: str) -> Seat:
    """A seat at the game of three, with these rules in the other seats."""
    env = Seat(LastOneOut())
    env.sit_only((seat,))
    env.set_lineup(Lineup({rule: 1 / len(rules) for rule in rules}, {rule: RulePlayer(rule) for rule in rules}))
    return env


def test_a_transition_goes_to_the_next_turn_of_the_same_player() -> None:
    env = Seat(TicTacToe())
    env.sit_only(("player_2",))
    obs, _ = env.reset(seed=1)
    for marks in (1, 3, 5, 7):
        own, other = obs["observation"][..., 0].sum(), obs["observation"][..., 1].sum()
        assert (own, other) == (marks // 2, marks // 2 + 1)
        assert obs["action_mask"].sum() == 9 - marks
        obs, reward, terminated, _, info = env.step(np.flatnonzero(obs["action_mask"])[0])
        if terminated:
            assert info == {"result": {1.0: 1.0, 0.0: 0.5, -1.0: 0.0}[reward]}
            break
    else:
        pytest.fail("the game did not end")


def test_rewards_between_two_turns_are_summed() -> None:
    env = seated("b", STAY)
    obs, _ = env.reset(seed=0)
    assert obs["obs"].tolist() == [1.0]  # a has moved
    obs, reward, terminated, _, _ = env.step(0)
    assert obs["obs"].tolist() == [4.0]
    assert reward == pytest.approx(-0.3)  # the turns of b, c and a
    env.step(0)
    _, reward, terminated, truncated, info = env.step(0)
    assert (terminated, truncated) == (True, False)
    assert reward == pytest.approx(1.0 - 0.2)  # its own turn and the ninth; nobody is out
    assert info == {"result": 0.5}


def test_learner_that_is_out_ends_its_episode_and_the_others_play_on() -> None:
    env = seated("a", STAY)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(1)
    assert terminated
    assert reward == pytest.approx(-1.1)
    assert info == {"result": 0.0}
    (result,) = env.take_results()
    assert result.against == ((STAY, 0.0), (STAY, 0.0))
    assert env.take_results() == []


def test_last_one_wins_when_the_others_leave() -> None:
    env = seated("a", LEAVE)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(0)
    assert terminated
    assert reward == pytest.approx(1.0 - 0.3)
    assert info == {"result": 1.0}


def test_seats_and_opponents_follow_from_the_seed() -> None:
    env = seated("a", STAY, LEAVE)
    env.sit_only(env.agents)
    drawn = []
    for seed in range(200):
        env.reset(seed=seed)
        drawn.append((env.seat, tuple(opponent.name for opponent in env._opponents.values())))
    again = []
    for seed in range(200):
        env.reset(seed=seed)
        again.append((env.seat, tuple(opponent.name for opponent in env._opponents.values())))
    assert drawn == again
    assert len(set(drawn)) == 11  # three seats, two opponents with two rules each; c needs one that does not leave
    assert 40 < sum(seat == "a" for seat, _ in drawn) < 95


@pytest.mark.parametrize("name", [*GAMES, "game_cases:LastOneOut", "pettingzoo/classic/connect_four_v3"])
def test_every_game_passes_the_checks(name: str) -> None:
    report = check_env(name)
    assert report.ok, str(report)
    assert replay_difference(EnvThunk(name), steps=40, seed=3) is None


def test_own_game_by_dotted_name_has_a_time_limit_in_turns_of_the_learner() -> None:
    from rl_training.config.schema import EnvConfig

    env = make_env("game_cases:LastOneOut", EnvConfig(max_episode_steps=1))
    seat_of(env).set_lineup(only(RulePlayer(STAY), STAY))
    env.reset()
    assert env.step(0)[2:4] == (False, True)


def test_replay_repeats_the_moves_of_opponents_that_have_changed_since() -> None:
    """Moves so far are logged; from there on the opponents of the new lineup play, with the random numbers of then."""
    env = EnvThunk("RLGame/ConnectFour-v0", seed=6)()
    obs, _ = env.reset()
    for column in (0, 2, 4, 6):
        obs, _, terminated, _, _ = env.step(column)
    assert not terminated
    state = copy.deepcopy(env.state_dict())
    resumed = EnvThunk("RLGame/ConnectFour-v0", seed=6)()
    changed = Lineup(
        {"random": 0.5, "x": 0.5}, {"random": RulePlayer("connect_four_lookahead"), "x": RulePlayer("random")}
    )
    seat_of(resumed).set_lineup(changed)
    seat_of(env).set_lineup(changed)
    resumed.load_state_dict(state)
    again, _ = resumed.reset()
    assert same_bits(again, obs)
    for _ in range(60):
        action = np.flatnonzero(obs["action_mask"])[0]
        results = [one.step(action) for one in (env, resumed)]
        assert same_bits(results[0][0], results[1][0])
        assert results[0][1:] == results[1][1:]
        obs = results[0][0]
        if results[0][2]:
            obs, _ = env.reset()
            assert same_bits(resumed.reset()[0], obs)


def test_opponent_that_leaves_is_replaced_and_the_game_not_rated() -> None:
    env = tictactoe()
    env.reset(seed=0)
    env.set_lineup(only(RulePlayer("perfect_tictactoe"), "perfect_tictactoe"))
    obs, terminated = None, False
    obs = env._observed(*[env.game.last()[i] for i in (0, 4)])
    while not terminated:
        obs, _, terminated, _, _ = env.step(np.flatnonzero(obs["action_mask"])[0])
    (result,) = env.take_results()
    assert result.against == ()


def test_refusals_are_one_sentence() -> None:
    with pytest.raises(EnvError, match=r"^environment 'AtOnce' has no turns: its agents act at the same time"):
        Seat(AtOnce())
    with pytest.raises(EnvError, match=r"'int' is no game"):
        Seat(3)
    env = seated("c", f"rule:{game_cases.__name__}:cheat")
    with pytest.raises(EnvError, match=r"opponent 'rule:game_cases:cheat' played 7, which is not legal"):
        env.reset(seed=3)

    for action in (0, 1):  # an opponent has ended, and the learner
        env = Seat(game_cases.Stays())
        env.set_lineup(only(RulePlayer(f"rule:{game_cases.__name__}:leave"), "leave"))
        env.sit_only(("a",))
        env.reset(seed=0)
        with pytest.raises(EnvError, match=r"'Stays': [abc] has ended and stays in agents; step\(None\) must"):
            env.step(action)

    class Numbered(LastOneOut):
        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = [0, 1, 2]  # type: ignore[list-item]

    with pytest.raises(
        EnvError, match=r"possible_agents of game 'Numbered' must be different strings, not \[0, 1, 2\]"
    ):
        Seat(Numbered())

    class Uneven(LastOneOut):
        def action_space(self, agent: str) -> Any:
            from gymnasium import spaces

            return spaces.Discrete(2 if agent == "a" else 3)

    with pytest.raises(EnvError, match="actions of b are Discrete\\(3\\), those of a Discrete\\(2\\); one policy"):
        Seat(Uneven())
