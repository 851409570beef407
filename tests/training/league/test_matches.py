"""Matches: both seats, counts that add up, opponents that are rules or runs, a person at the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from game_cases import LastOneOut
from test_league_runs import mapping

from rl_training.cli import main
from rl_training.envs import make_env
from rl_training.envs.games.players import RulePlayer, mask_of, without_mask
from rl_training.envs.games.rules import perfect_tictactoe
from rl_training.envs.games.seat import Seat
from rl_training.eval import evaluate, play
from rl_training.trainer import train
from rl_training.training.league.matches import Against, Games, Tally, exploitability, play_match
from rl_training.training.league.person import games_of_a_person
from rl_training.types import ActResult, ConfigError, EnvError


class RulePolicy:
    """A rule as a policy of a batch."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def initial_carry(self, num_envs: int) -> dict[str, Any]:
        return {}

    def act(self, obs: Any, carry: Any, is_first: Any, rng: Any, *, deterministic: bool = False) -> ActResult:
        rows = [{key: value[row] for key, value in obs.items()} for row in range(len(is_first))]
        actions = np.array([self.rule(without_mask(row), mask_of(row), rng) for row in rows])
        return ActResult(actions, actions, carry)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any, /) -> None:
        pass


def game(index: int) -> Any:
    return make_env("RLGame/TicTacToe-v0", index=index, training=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(mapping(tmp_path_factory.mktemp("matches"))).run_dir


def test_perfect_player_never_loses_and_draws_with_itself() -> None:
    policy = RulePolicy(perfect_tictactoe)
    result, record = play_match(policy, game, Against("random", RulePlayer("random")), Games(41, 0), "x")
    assert len(result.returns) == 41
    assert [tally["games"] for tally in record["seats"].values()] == [21, 20]
    assert record["losses"] == 0
    assert record["wins"] + record["draws"] == 41
    assert record["wins"] == (result.returns == 1).sum() > 20
    assert record["score"] == pytest.approx((record["wins"] + record["draws"] / 2) / 41)
    _, mirror = play_match(policy, game, Against("p", RulePlayer("perfect_tictactoe")), Games(10, 0), "x")
    assert mirror["draws"] == 10


def test_number_of_environments_changes_no_game() -> None:
    against = Against("random", RulePlayer("random"))
    first = RulePolicy(lambda observation, mask, rng: int(np.flatnonzero(mask)[0]))
    results = [play_match(first, game, against, Games(12, 4, num_envs=count), "x") for count in (1, 5)]
    np.testing.assert_array_equal(results[0][0].returns, results[1][0].returns)
    assert results[0][1] == results[1][1]


def test_exploitability_of_rules() -> None:
    assert exploitability(RulePolicy(perfect_tictactoe), deterministic=True)["exploitability"] == 0.0
    first = RulePolicy(lambda observation, mask, rng: int(np.flatnonzero(mask)[0]))
    assert exploitability(first, deterministic=True)["exploitability"] == 1.0
    assert exploitability(first, deterministic=False) == {}


def test_run_against_rule_and_run(run: Path) -> None:
    random = evaluate(run, episodes=20, opponent="random")
    assert random["opponent"] == "random"
    assert random["games"] == random["wins"] + random["draws"] + random["losses"] == 20
    assert list(random["seats"]) == ["player_1", "player_2"]
    assert 0.0 <= random["exploitability"] <= 1.0
    assert evaluate(run, episodes=20, opponent="random") == random
    sampled = evaluate(run, episodes=6, opponent=str(run), stochastic=True)
    assert sampled["games"] == 6
    assert sampled["exploitability"] > random["exploitability"] - 1
    with pytest.raises(ConfigError, match=r"opponent 'nobody' is neither a rule \(.*\) nor a run"):
        evaluate(run, episodes=2, opponent="nobody")
    with pytest.raises(ConfigError, match=r"did you mean 'perfect_tictactoe'\?$"):
        evaluate(run, episodes=2, opponent="perfect_tictacto")
    with pytest.raises(EnvError, match=r"^the rule 'connect_four_lookahead' plays connect_four on boards \(6, 7, 2\)"):
        evaluate(run, episodes=2, opponent="connect_four_lookahead")


def test_environment_without_turns_has_no_opponent() -> None:
    with pytest.raises(ConfigError, match=r"environment 'CartPole-v1' has no turns, so there is no opponent"):
        play_match(
            RulePolicy(perfect_tictactoe),
            lambda index: make_env("CartPole-v1"),
            Against("random", RulePlayer("random")),
            Games(2, 0),
            "CartPole-v1",
        )


def test_tally() -> None:
    tally = Tally.of(np.array([1.0, 1.0, 0.5, 0.0]))
    assert (tally.wins, tally.draws, tally.losses, tally.games) == (2, 1, 1, 4)
    assert tally.record()["score"] == 0.625


def typed(*words: str) -> tuple[Any, list[str]]:
    """(ask, what was told): answers the words one after the other, then the end of the input."""
    answers: Iterator[str] = iter(words)
    return (lambda prompt: next(answers, None)), []


def test_person_plays_to_the_end(run: Path) -> None:
    ask, told = typed(*map(str, range(9)), *map(str, range(9)))
    scores = play(run, ask, told.append, games=2, seed=1)
    assert len(scores) == 2
    assert set(scores) <= {0.0, 0.5, 1.0}
    assert told[0] == "you are player_1 (X)"
    assert told[1] == "0 1 2\n3 4 5\n6 7 8"
    assert any(line.startswith("player_2 plays ") for line in told)
    assert "you are player_2 (O)" in told
    assert sum(line.startswith(("you win", "you lose", "a draw")) for line in told) == 2


def test_person_is_told_what_is_possible_and_may_leave() -> None:
    ask, told = typed("7", "x", "0", "q")
    env = Seat(LastOneOut())
    scores = games_of_a_person(env, RulePlayer("rule:game_cases:stay"), "b", 3, 0, ask, told.append)
    assert scores == []
    assert told.count("possible: 0 1") == 2
    assert "a plays 0" in told
    with pytest.raises(ConfigError, match=r"no seat 'z'; seats are a, b, c"):
        games_of_a_person(env, RulePlayer("random"), "z", 1, 0, ask, told.append)
    with pytest.raises(ConfigError, match="no turns"):
        games_of_a_person(make_env("CartPole-v1"), RulePlayer("random"), None, 1, 0, ask, told.append)


def test_commands(run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["league", str(run)]) == 0
    table = capsys.readouterr().out
    assert "learner" in table
    assert "snapshot:640" in table
    assert "snapshot:128 (has left)" in table
    assert main(["eval", str(run), "--opponent", "random", "--episodes", "10"]) == 0
    text = capsys.readouterr().out
    assert "against random: " in text
    assert "  as player_2: " in text
    assert "exploitability " in text
    assert main(["eval", str(run), "--opponent", "nobody"]) == 2
    assert "--opponent 'nobody' is neither a rule" in capsys.readouterr().err
    assert main(["eval", str(run), "--opponent", "randm"]) == 2
    assert "did you mean 'random'?" in capsys.readouterr().err
    monkeypatch.setattr("builtins.input", lambda prompt: "q")
    assert main(["play", str(run), "--seat", "1"]) == 0
    assert "you are player_2 (O)" in capsys.readouterr().out
