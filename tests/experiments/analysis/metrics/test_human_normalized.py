"""Human-normalised scores: their table, and comparisons in which a score means the same in every game."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparison_cases import by_algorithm, scored_run

from rl_training.experiments.analysis.compare import OVERALL, record
from rl_training.experiments.analysis.metrics.atari_scores import SCORES, game_of, human_normalized
from rl_training.types import ConfigError


def test_the_table_has_the_games_whose_scores_are_agreed_on() -> None:
    assert len(SCORES) == 56
    assert all(human > random for random, human in SCORES.values())
    assert "VideoPinball" not in SCORES
    assert SCORES["Breakout"] == (1.7, 30.5)


@pytest.mark.parametrize(
    ("env_id", "game"),
    [
        ("ALE/MsPacman-v5", "MsPacman"),
        ("MsPacmanNoFrameskip-v4", "MsPacman"),
        ("MsPacmanDeterministic-v4", "MsPacman"),
        ("MsPacman-v0", "MsPacman"),
        ("ALE/VideoPinball-v5", None),
        ("CartPole-v1", None),
        ("ALE/Pong-v5-extra", None),
    ],
)
def test_the_game_of_an_id(env_id: str, game: str | None) -> None:
    assert game_of(env_id) == game


def test_random_is_0_and_human_is_1() -> None:
    assert human_normalized("ALE/Pong-v5", -20.7) == 0.0
    assert human_normalized("ALE/Pong-v5", 14.6) == 1.0
    assert human_normalized("BreakoutNoFrameskip-v4", 59.3) == pytest.approx(2.0)
    assert human_normalized("CartPole-v1", 500.0) is None


def atari_runs(folder: Path) -> None:
    """ppo is human at Breakout and half of it at Freeway, a2c random and twice as good."""
    for number, (algo, env_id, final) in enumerate(
        [
            ("ppo", "ALE/Breakout-v5", 30.5),
            ("ppo", "FreewayNoFrameskip-v4", 14.8),
            ("a2c", "ALE/Breakout-v5", 1.7),
            ("a2c", "FreewayNoFrameskip-v4", 59.2),
        ]
    ):
        scored_run(folder, number, [1.7, 2.0, final], algo=algo, env_id=env_id)


def test_scores_are_summed_up_as_they_are(tmp_path: Path) -> None:
    atari_runs(tmp_path)
    (result,) = by_algorithm(tmp_path, "hns").metrics
    overall = {one.entry: one for one in result.overall}
    assert overall["ppo"].task == OVERALL
    assert overall["ppo"].scores == pytest.approx((1.0, 0.5))
    assert overall["a2c"].scores == pytest.approx((0.0, 2.0))
    assert overall["a2c"].mean.value == pytest.approx(1.0)
    assert not result.is_scaled
    (curve,) = result.curves["ppo", "ALE/Breakout-v5"]
    assert curve.values.tolist() == pytest.approx([0.0, 0.3 / 28.8, 1.0])


def test_rewards_of_several_games_are_still_scaled(tmp_path: Path) -> None:
    atari_runs(tmp_path)
    (result,) = by_algorithm(tmp_path, "reward").metrics
    assert result.is_scaled
    assert {one.entry: one.scores for one in result.overall} == {"ppo": (1.0, 0.0), "a2c": (0.0, 1.0)}


def test_runs_of_other_environments_are_left_out_and_said(tmp_path: Path) -> None:
    atari_runs(tmp_path)
    scored_run(tmp_path, 9, [1.0, 2.0, 3.0], algo="ppo")
    comparison = by_algorithm(tmp_path, "hns")
    assert "ppo: 1 of 3 runs have no hns" in comparison.notes
    assert {one.task for one in comparison.metrics[0].summaries} == {"ALE/Breakout-v5", "FreewayNoFrameskip-v4"}
    assert record(comparison)["metrics"][0]["name"] == "hns"


def test_without_a_game_it_is_refused(tmp_path: Path) -> None:
    scored_run(tmp_path, 0, [1.0, 2.0, 3.0])
    with pytest.raises(ConfigError, match="no run is of an Atari game with a published human score, which 'hns' needs"):
        by_algorithm(tmp_path, "hns")
