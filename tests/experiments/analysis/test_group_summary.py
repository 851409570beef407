"""What the seeds say together: numbers worked out by hand, and the same from disk whoever wrote it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from group_cases import new_group, train_members

from rl_training.experiments.analysis.group_summary import (
    aggregate,
    aggregate_text,
    plot_group,
    summarize,
    write_summary,
)
from rl_training.experiments.analysis.statistics import estimate
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.runs.directory import RunDir, Status
from rl_training.seeding import stream


def ended(group: SeedGroup, seed: int, score: float | None, status: Status = "finished", metric: str = "eval") -> None:
    """A member that came to its end with this return."""
    run = RunDir.create(replace(group.config(), seed=seed), group=group.info.id)
    run.write_summary({"env_steps": 96, f"{metric}/return_mean": score})
    run.finish(status)


def test_the_finished_seeds_count(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1, 2, 3, 4, 5, 6, 7))
    for seed, score in zip((1, 2, 3, 4, 5), (10.0, 50.0, 30.0, 20.0, 490.0), strict=True):
        ended(group, seed, score)
    ended(group, 6, 1000.0, "failed")
    group.observe()
    summary = write_summary(group)
    result = summary["return"]
    assert (summary["metric"], summary["num_seeds"], summary["num_scores"]) == ("eval/return_mean", 7, 5)
    assert result["iqm"]["value"] == pytest.approx(100.0 / 3.0)  # 20, 30 and 50
    assert (result["mean"], result["median"], result["min"], result["max"]) == (120.0, 30.0, 10.0, 490.0)
    assert result["std"] == pytest.approx(207.364413, abs=1e-6)  # of a sample: n - 1
    interval = estimate([[10.0, 50.0, 30.0, 20.0, 490.0]], rng=stream(0, "bootstrap"))
    assert (result["iqm"]["low"], result["iqm"]["high"]) == (interval.low, interval.high)
    assert [(run["seed"], run["status"], run["return"]) for run in summary["runs"][4:]] == [
        (5, "finished", 490.0),
        (6, "failed", 1000.0),
        (7, "waiting", None),
    ]
    assert json.loads((group.path / "summary.json").read_text()) == summary
    assert summarize(SeedGroup.open(group.path)) == summary


def test_without_evaluations_training_episodes_count(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1, 2))
    ended(group, 1, 5.0, metric="rollout")
    ended(group, 2, None, metric="rollout")  # no episode came to an end
    group.observe()
    summary = summarize(group)
    assert (summary["metric"], summary["num_scores"]) == ("rollout/return_mean", 1)
    assert summary["return"]["mean"] == 5.0


def test_nothing_finished_is_no_number(tmp_path: Path) -> None:
    group = new_group(tmp_path)
    summary = summarize(group)
    assert (summary["return"], summary["num_scores"]) == (None, 0)
    assert aggregate_text(None, 0) == "no seed is finished"
    assert plot_group(group, summary["metric"]) == []


def test_the_words() -> None:
    alone = aggregate([3.0])
    assert aggregate_text(alone, 1) == "IQM 3.0, mean 3.0 over 1 seed"
    both = aggregate([0.0, 10.0])
    assert aggregate_text(both, 2) == "IQM 5.0, 95% interval 0.0 to 10.0, mean 5.0 +- 7.071 over 2 seeds"


def test_the_plot_shows_the_finished_members(tmp_path: Path) -> None:
    group = train_members(new_group(tmp_path, (1, 2, 3)), [1, 2])
    paths = plot_group(group, "eval/return_mean")
    assert [path.name for path in paths] == ["learning_curve.png", "learning_curve.svg"]
    assert "ppo on CartPole-v1, 2 seeds" in paths[1].read_text()
