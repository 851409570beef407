"""The tracker finds what was registered, and two runs are told apart by what really differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_cases import fake_run

from rl_training.experiments.keeping.run_diff import run_differences
from rl_training.experiments.keeping.tracker import ExperimentTracker, add_tags
from rl_training.runs.directory import RunDir
from rl_training.types import ConfigError, RunError


def test_register_find_compare(tmp_path: Path) -> None:
    tracker = ExperimentTracker(tmp_path)
    ids = [
        tracker.register_experiment(fake_run(tmp_path, 1, reward=10.0)),
        tracker.register_experiment(fake_run(tmp_path, 2, reward=30.0, algo="a2c")),
        tracker.register_experiment(fake_run(tmp_path, 3, reward=20.0), tags=["good"]),
    ]
    assert [row["id"] for row in tracker.find_experiments()] == ids[::-1]
    assert [row["id"] for row in tracker.find_experiments("reward>15", sort="reward")] == [ids[1], ids[2]]
    assert [row["id"] for row in tracker.find_experiments(sort="-reward", limit=1)] == [ids[0]]
    assert [row["id"] for row in tracker.find_experiments(algorithm="ppo", tag="good")] == [ids[2]]
    assert tracker.compare_experiments(ids[:2], ["reward", "loss", "hparams.gamma"]) == {
        ids[0]: {"reward": 10.0, "loss": 0.5, "hparams.gamma": 0.99},
        ids[1]: {"reward": 30.0, "loss": 0.5, "hparams.gamma": 0.99},
    }
    with pytest.raises(RunError, match="no run 'nothing'"):
        tracker.register_experiment("nothing")


def test_tags_live_in_the_run_directory(tmp_path: Path) -> None:
    run = RunDir(fake_run(tmp_path, tags=["a"]))
    assert add_tags(run, ["b", "a", " c "]) == ["a", "b", "c"]
    assert add_tags(run, [], remove=["a", "x"]) == ["b", "c"]
    assert run.info()["tags"] == ["b", "c"]
    for tag in ("", " ", "a\nb", "\x1b[31m", "t" * 201):
        with pytest.raises(ConfigError, match="a tag is 1 to 200 printable characters"):
            add_tags(run, [tag])


def test_tags_of_a_run_of_an_older_version(tmp_path: Path) -> None:
    run = RunDir(fake_run(tmp_path))
    info = {key: value for key, value in run.info().items() if key != "tags"}
    (run.path / "run.json").write_text(json.dumps(info))
    assert add_tags(run, ["new"]) == ["new"]


def test_a_secret_in_a_tag_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-very-secret")
    assert add_tags(RunDir(fake_run(tmp_path)), ["hunter2-very-secret"]) == ["${env:MY_TOKEN}"]


def test_the_differences_of_two_runs(tmp_path: Path) -> None:
    one = fake_run(tmp_path, 1, reward=10.0, versions={"numpy": "2.1"}, git={"commit": "aaa", "dirty": False})
    other = fake_run(tmp_path, 2, reward=20.0, versions={"numpy": "2.2", "torch": "3"}, git={"commit": "bbb"})
    text = (other / "configs" / "resolved.yaml").read_text()
    (other / "configs" / "resolved.yaml").write_text(text.replace("gamma: 0.99", "gamma: 0.9"))
    assert run_differences(RunDir(one), RunDir(other)) == {
        "config": {"seed": (1, 2), "hparams.gamma": (0.99, 0.9)},
        "versions": {"numpy": ("2.1", "2.2"), "torch": (None, "3")},
        "code": {"commit": ("aaa", "bbb"), "dirty": (False, None)},
        "results": {"eval/return_mean": (10.0, 20.0)},
    }
    assert run_differences(RunDir(one), RunDir(one)) == {"config": {}, "versions": {}, "code": {}, "results": {}}
    (one / "configs" / "resolved.yaml").unlink()
    with pytest.raises(RunError, match="nothing to compare"):
        run_differences(RunDir(one), RunDir(other))
