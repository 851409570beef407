"""A league: ratings by hand, draws, members that come and go, and weights that a checkpoint writes once."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.multi_agent.league import LeagueConfig
from rl_training.envs.games.players import LATEST, GraphPlayer
from rl_training.envs.games.seat import GameResult
from rl_training.export.graph import GraphBuilder, PolicyGraph
from rl_training.training.league.league import League
from rl_training.types import ConfigError


def policy(bias: float) -> PolicyGraph:
    """A policy of three moves whose logits are the observation times a matrix, plus a bias for the first move."""
    builder = GraphBuilder()
    seen = builder.input("obs", np.float32, (2,))
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    logits = builder.affine(seen, weight, np.array([bias, 0, 0], np.float32))
    builder.output("actions", builder.add("ArgMax", logits, axis=1, keepdims=0), np.int64, ())
    builder.output("logits", logits, np.float32, (3,))
    return builder.finished({"head": "actor_critic"})


def game(name: str, score: float) -> GameResult:
    return GameResult(0, score, ((name, score),))


def test_ratings_and_counts_move_by_games() -> None:
    league = League(LeagueConfig(), policy(0))
    league.record([game("random", 1.0), game(LATEST, 0.0)])
    random = league.members["random"]
    assert (league.rating, random.rating) == (1008.0, 992.0)
    assert (random.wins, random.draws, random.losses, random.games) == (1, 0, 0, 1)
    assert random.recent == pytest.approx(0.51)
    league.record([game("random", 0.5), game("random", 0.0)])
    assert (random.wins, random.draws, random.losses) == (1, 1, 1)
    assert league.rating + random.rating == pytest.approx(2000.0)
    assert league.score == pytest.approx(0.5)


def test_draws_are_latest_first_then_by_priority() -> None:
    league = League(LeagueConfig(opponents=("random", "perfect_tictactoe"), latest=0.4), policy(0))
    league.members["random"].recent = 0.8
    league.members["perfect_tictactoe"].recent = 0.4
    chances = league.chances()
    assert list(chances) == [LATEST, "random", "perfect_tictactoe"]
    assert chances[LATEST] == 0.4
    assert chances["random"] == pytest.approx(0.6 * 0.04 / 0.4)
    assert sum(chances.values()) == pytest.approx(1.0)
    alone = League(LeagueConfig(latest=1.0), policy(0))
    assert alone.chances() == {LATEST: 1.0}


def test_oldest_snapshot_leaves_and_keeps_its_rating() -> None:
    league = League(LeagueConfig(size=2), policy(0))
    for step in (10, 20, 30):
        league.rating = 1000.0 + step
        league.add(policy(step), step)
    assert list(league.members) == ["random", "snapshot:20", "snapshot:30"]
    assert [(member.name, member.rating) for member in league.retired] == [("snapshot:10", 1010.0)]
    assert [row["name"] for row in league.table()] == ["learner", "snapshot:30", "snapshot:20", "snapshot:10", "random"]
    for name, bias in (("snapshot:20", 20), ("snapshot:30", 30)):
        player = league.player(league.members[name])
        assert isinstance(player, GraphPlayer)
        logits = player.outputs(np.zeros((1, 2), np.float32))["logits"]
        np.testing.assert_array_equal(logits, [[bias, 0, 0]])


def test_snapshot_comes_early_where_the_score_is_high() -> None:
    league = League(LeagueConfig(snapshot_score=0.75), policy(0))
    league.record([game("random", 1.0)] * 99)
    assert not league.wants_early_snapshot()
    league.record([game("random", 1.0)])
    assert league.wants_early_snapshot()
    league.add(policy(1), 5)
    assert not league.wants_early_snapshot()
    league.record([game("random", 0.5)] * 200)
    assert not league.wants_early_snapshot()


def test_moves_of_a_graph_follow_its_probabilities() -> None:
    player, rng = GraphPlayer(policy(np.log(2))), np.random.default_rng(0)
    moves = [player.act(np.zeros(2, np.float32), {}, rng)[0] for _ in range(4000)]
    assert np.bincount(moves) / 4000 == pytest.approx([0.5, 0.25, 0.25], abs=0.03)
    greedy = GraphPlayer(policy(np.log(2)), greedy=True)
    assert {greedy.act(np.zeros(2, np.float32), {}, rng)[0] for _ in range(20)} == {0}


def test_weights_are_written_once_and_outlive_checkpoints(tmp_path: Path) -> None:
    """Four saves, one snapshot between each: every member's weights are in one segment, of which nothing is rewritten;
    the last checkpoint has them all."""
    manager = CheckpointManager(tmp_path, keep_last=2)
    league = League(LeagueConfig(size=8), policy(0))
    written: list[set[str]] = []
    for step in range(4):
        league.add(policy(step + 1), step)
        manager.save({"league": league.state_dict()}, step=step)
        written.append(set(os.listdir(tmp_path / "checkpoints" / "segments")))
    assert [len(files) for files in written] == [2, 4, 6, 8]  # two copies of each
    assert all(before < after for before, after in pairwise(written))
    assert len(list((tmp_path / "checkpoints").glob("step_*"))) == 2
    again = League(LeagueConfig(size=8), policy(0))
    again.load_state_dict(CheckpointManager(tmp_path).load_latest().parts["league"])
    assert again.table() == league.table()
    for name, member in again.members.items():
        if member.row is not None:
            ours, theirs = league.player(league.members[name]), again.player(member)
            assert isinstance(ours, GraphPlayer)
            assert isinstance(theirs, GraphPlayer)
            for key, array in ours.graph.constants.items():
                np.testing.assert_array_equal(array, theirs.graph.constants[key])


def test_config_without_anybody_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"league.opponents is empty"):
        LeagueConfig(opponents=())
    with pytest.raises(ConfigError, match="twice"):
        LeagueConfig(opponents=("random", "random"))
