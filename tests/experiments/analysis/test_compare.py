"""Comparisons: every number against one worked out by hand on eight runs with known scores."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from comparison_cases import by_algorithm, scored_run, two_algorithms

from rl_training.experiments.analysis.compare import OVERALL, Comparison, compare, record, steps_to
from rl_training.experiments.analysis.curves import Curve
from rl_training.experiments.analysis.entries import find_entries
from rl_training.types import ConfigError


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("compare")
    two_algorithms(folder)
    return by_algorithm(folder, "reward", "loss", "seconds")


def test_scores_of_each_entry(comparison: Comparison) -> None:
    ppo, a2c = comparison.metrics[0].summaries
    assert (ppo.entry, ppo.task, ppo.scores) == ("ppo", "CartPole-v1", (40.0, 50.0, 60.0, 70.0))
    assert (ppo.iqm.value, ppo.mean.value, ppo.median.value) == (55.0, 55.0, 55.0)
    assert (a2c.iqm.value, a2c.mean.value, a2c.median.value) == (25.0, 30.0, 25.0)
    assert a2c.iqm.low is not None
    assert a2c.iqm.high is not None
    assert 10.0 <= a2c.iqm.low < 25.0 < a2c.iqm.high <= 60.0
    assert comparison.metrics[0].headline == (ppo, a2c)


def test_steps_to_the_median_of_the_weakest(comparison: Comparison) -> None:
    """That is 25: a2c's runs end at 10 and 20 below it, reach it with 30 at 3000 steps, and with 60 at 2000."""
    result = comparison.metrics[0]
    assert result.thresholds == {"CartPole-v1": 25.0}
    ppo, a2c = result.summaries
    assert (ppo.steps_to_threshold, ppo.reached) == (2000.0, 4)  # 3000, 2000, 2000, 2000
    assert (a2c.steps_to_threshold, a2c.reached) == (None, 2)


def test_who_is_better(comparison: Comparison) -> None:
    """Low losses are good; here they are the inverse of the returns, so the probability is the same."""
    for result in comparison.metrics[:2]:
        (found,) = result.improvements
        assert (found.entry, found.over, found.probability.value) == ("ppo", "a2c", 13.5 / 16)
        turned = found.turned()
        assert (turned.entry, turned.over, turned.probability.value) == ("a2c", "ppo", 2.5 / 16)
        assert turned.probability.high == 1.0 - (found.probability.low or 0.0)


def test_performance_profile(comparison: Comparison) -> None:
    result = comparison.metrics[0]
    ppo, a2c = result.profiles
    assert (result.levels[0], result.levels[50], result.levels[100]) == (10.0, 40.0, 70.0)
    assert (ppo.share[0], ppo.share[50], ppo.share[100]) == (1.0, 1.0, 0.25)
    assert (a2c.share[0], a2c.share[50], a2c.share[100]) == (1.0, 0.25, 0.0)
    loss = comparison.metrics[1]
    assert loss.levels[0] == pytest.approx(1 / 10)  # from the worst to the best, shares of runs at most that
    assert loss.profiles[1].share[0] == 1.0


def test_costs_are_medians(comparison: Comparison) -> None:
    ppo, _ = comparison.costs
    assert (ppo.runs, ppo.seconds, ppo.peak_memory_bytes) == (4, 11.5, 5e8)
    assert ppo.steps_per_second == pytest.approx((3000 / 11 + 3000 / 12) / 2)


def test_a_column_has_scores_and_no_curves(comparison: Comparison) -> None:
    seconds = comparison.metrics[2]
    assert seconds.summaries[0].scores == (10.0, 11.0, 12.0, 13.0)
    assert (seconds.curves, seconds.thresholds, seconds.summaries[0].reached) == ({}, {}, None)


def test_several_environments_are_scaled(tmp_path: Path) -> None:
    """The second pays ten times as much; from its worst to its best run it is the same as the first."""
    two_algorithms(tmp_path, tasks=["CartPole-v1", "Acrobot-v1"])
    result = by_algorithm(tmp_path).metrics[0]
    assert [(one.entry, one.task, one.iqm.value) for one in result.summaries] == [
        ("ppo", "Acrobot-v1", 550.0), ("a2c", "Acrobot-v1", 250.0),
        ("ppo", "CartPole-v1", 55.0), ("a2c", "CartPole-v1", 25.0),
    ]  # fmt: skip
    ppo, a2c = result.overall
    assert (ppo.task, ppo.iqm.value, a2c.iqm.value) == (OVERALL, pytest.approx(0.75), pytest.approx(0.25))
    assert sorted(a2c.scores) == pytest.approx([0, 0, 1 / 6, 1 / 6, 1 / 3, 1 / 3, 5 / 6, 5 / 6])
    assert result.improvements[0].probability.value == pytest.approx(13.5 / 16)
    assert by_algorithm(tmp_path, "-reward").metrics[0].overall[0].iqm.value == pytest.approx(0.75)


def test_environments_that_not_all_have_are_not_summed_up(tmp_path: Path) -> None:
    two_algorithms(tmp_path, tasks=["CartPole-v1", "Acrobot-v1"])
    scored_run(tmp_path, 90, [1.0, 2.0, 3.0], algo="random", env_id="Pendulum-v1")
    found = by_algorithm(tmp_path)
    result = found.metrics[0]
    assert (result.overall, result.profiles, result.headline) == ((), (), ())
    assert [(one.entry, one.over) for one in result.improvements] == [("ppo", "a2c")]
    assert "0 of 3 environments are common to all entries; only those are aggregated" in found.notes


def test_the_threshold_that_was_asked_for(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    assert [one.reached for one in by_algorithm(tmp_path, threshold=55.0).metrics[0].summaries] == [2, 1]
    for run in tmp_path.glob("*__*"):
        config = run / "configs" / "resolved.yaml"
        config.write_text(config.read_text().replace("stop_at_return: null", "stop_at_return: 45.0"))
    (tmp_path / "index.sqlite").unlink()
    assert by_algorithm(tmp_path).metrics[0].thresholds == {"CartPole-v1": 45.0}


def test_steps_to() -> None:
    curve = Curve(np.array([10, 20, 30]), np.array([1.0, 5.0, 3.0]))
    assert [steps_to(curve, level) for level in (1.0, 2.0, 5.0, 6.0)] == [10.0, 20.0, 20.0, math.inf]
    assert steps_to(curve, 0.5, low_is_good=True) == math.inf
    assert steps_to(curve, 1.0, low_is_good=True) == 10.0


def test_runs_without_a_score_are_counted(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    run = scored_run(tmp_path, 50, [1.0, 2.0, 3.0], seed=9)
    metrics = json.loads((run / "metrics.json").read_text())
    (run / "metrics.json").write_text(json.dumps({**metrics, "train/loss": None}))
    (run / "logs" / "metrics.jsonl").unlink()
    found = by_algorithm(tmp_path, "loss", "reward")
    assert [len(one.scores) for one in found.metrics[0].summaries] == [4, 4]
    assert "ppo: 1 of 5 runs have no loss" in found.notes
    assert "1 runs have no log of reward (cleaned up?): they are not in its curves" in found.notes


def test_training_episodes_count_where_not_all_were_evaluated(tmp_path: Path) -> None:
    for number, name in enumerate(("eval/return_mean", "rollout/return_mean")):
        run = scored_run(tmp_path, number, [1.0, 2.0, 3.0])
        metrics = json.loads((run / "metrics.json").read_text())
        del metrics["eval/return_mean"]
        (run / "metrics.json").write_text(json.dumps({**metrics, name: 5.0, "rollout/return_mean": 4.0}))
    found = by_algorithm(tmp_path).metrics[0]
    assert (found.metric.logged, found.summaries[0].scores) == ("rollout/return_mean", (4.0, 4.0))


def test_runs_of_unequal_length_are_mentioned(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    run = scored_run(tmp_path, 50, [1.0, 2.0, 3.0], seed=9)
    metrics = json.loads((run / "metrics.json").read_text())
    (run / "metrics.json").write_text(json.dumps({**metrics, "env_steps": 2000}))
    assert by_algorithm(tmp_path).notes == ("the runs differ in length: 2,000 to 3,000 env steps",)


def test_many_entries_are_compared_with_the_best(tmp_path: Path) -> None:
    for number in range(12):
        scored_run(tmp_path, number, [1.0, 2.0, 50.0 - abs(number - 7)], seed=number)
    found = compare(find_entries(["status=finished"], tmp_path, by=["seed"])).metrics[0]
    assert {one.entry for one in found.improvements} == {"7"}
    assert len(found.improvements) == 11


def test_the_record_is_plain_json_and_has_the_curves(comparison: Comparison) -> None:
    found = json.loads(json.dumps(record(comparison), allow_nan=False))
    assert [entry["label"] for entry in found["entries"]] == ["ppo", "a2c"]
    assert [len(entry["runs"]) for entry in found["entries"]] == [4, 4]
    curve = found["metrics"][0]["curves"][0]
    assert (curve["entry"], curve["env_steps"], curve["iqm"]) == ("ppo", [1000, 2000, 3000], [13.75, 27.5, 55.0])
    assert found["metrics"][0]["summaries"][0]["iqm"]["value"] == 55.0


@pytest.mark.parametrize("name", ["train/nothing", "name", "started"])
def test_what_is_no_number_is_refused(name: str, tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    with pytest.raises(ConfigError, match=f"no run has a number for '{name}'"):
        by_algorithm(tmp_path, name)


def test_offline_runs_are_compared_by_score_and_drawn_over_updates(tmp_path: Path) -> None:
    """One axis never mixes env steps and updates; the scores of both kinds are compared."""
    scored_run(tmp_path, 0, (10.0, 20.0, 30.0), algo="ppo")
    offline = scored_run(tmp_path, 1, (20.0, 30.0, 40.0), algo="bc")
    log = offline / "logs" / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps({**row, "updates": 7 * row["env_steps"], "env_steps": 0}) + "\n" for row in rows))
    results = offline / "metrics.json"
    results.write_text(json.dumps({**json.loads(results.read_text()), "env_steps": 0, "updates": 21_000}))
    found = by_algorithm(tmp_path)
    (result,) = found.metrics
    assert {one.entry: one.scores for one in result.summaries} == {"ppo": (30.0,), "bc": (40.0,)}
    assert {place: curves[0].steps.tolist() for place, curves in result.curves.items()} == {
        ("ppo", "CartPole-v1 (env steps)"): [1000, 2000, 3000],
        ("bc", "CartPole-v1 (updates)"): [7000, 14000, 21000],
    }
    assert result.axes == {"CartPole-v1 (env steps)": "env steps", "CartPole-v1 (updates)": "updates"}
    assert any("their curves are drawn apart" in note for note in found.notes)
    assert [set(band) & {"env_steps", "updates"} for band in record(found)["metrics"][0]["curves"]] == [
        {"env_steps"},
        {"updates"},
    ]
