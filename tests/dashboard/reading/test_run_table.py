"""The table answers as `rl list` does, without reading configs and results of all runs, and follows the directories."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from run_cases import fake_run

from rl_training.dashboard.reading import tables
from rl_training.dashboard.reading.grouping import grouped
from rl_training.dashboard.reading.tables import NoRunError, RunTable
from rl_training.experiments.keeping.tracker import ExperimentTracker
from rl_training.runs.index import FILE, RunIndex, record
from rl_training.types import ConfigError


def table(*folders: Path, read_only: bool = False) -> RunTable:
    found = RunTable(folders, read_only=read_only)
    found.refresh()
    return found


def some_runs(folder: Path) -> list[Path]:
    runs = [
        fake_run(folder, 0, reward=10.0, tags=["keep"]),
        fake_run(folder, 1, reward=30.0, name="best"),
        fake_run(folder, 2, reward=20.0, algo="a2c"),
        fake_run(folder, 3, algo="a2c", status="failed", notes="entropy collapsed"),
    ]
    for run in runs:
        record(run)
    return runs


def test_an_index_that_does_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking must not itself be a change: SQLite makes files beside an index whenever the first reader opens it."""
    monkeypatch.setattr(tables, "SETTLED_NS", 20_000_000)
    some_runs(tmp_path)
    found = table(tmp_path)
    for _ in range(2):  # what was written just now may change again within the same time stamp
        time.sleep(0.05)
        found.refresh()
    monkeypatch.setattr(RunIndex, "rows", lambda *_, **__: pytest.fail("the index was read again"))
    for _ in range(3):
        time.sleep(0.05)
        assert not found.refresh()


@pytest.mark.parametrize(
    ("text", "sort"),
    [
        ("", ""),
        ("algorithm=ppo", "reward"),
        ("algorithm=ppo and (reward>20 or tag=keep)", ""),
        ("eval/return_mean>15", "-reward"),
        ("hparams.learning_rate<1 and status!=failed", "hparams.learning_rate"),
        ("notes~entropy", ""),
        ("tags!=keep", "seed"),
    ],
)
def test_filters_and_order_are_those_of_the_command(tmp_path: Path, text: str, sort: str) -> None:
    some_runs(tmp_path)
    expected = [row["directory"] for row in ExperimentTracker(tmp_path).find_experiments(text, sort=sort or None)]
    assert [ref.path.name for ref in table(tmp_path).select(text, sort)] == expected


@pytest.mark.parametrize(
    "text",
    ["rewrd>3", "reward>>3", "hparams.learning_rat>1", "eval/retrn=3", "reward>x", "status=finishd", "x" * 10_001],
)
def test_mistakes_are_answered_in_the_words_of_the_command(tmp_path: Path, text: str) -> None:
    some_runs(tmp_path)
    with pytest.raises(ConfigError) as command:
        ExperimentTracker(tmp_path).find_experiments(text)
    with pytest.raises(ConfigError) as page:
        table(tmp_path).select(text)
    assert str(page.value) == str(command.value)


def test_a_page_of_rows(tmp_path: Path) -> None:
    some_runs(tmp_path)
    found = table(tmp_path).page("", "reward", ["status", "reward", "hparams.gamma", "eval/return_mean"], 1, 2)
    assert (found["total"], found["all"], found["counts"]) == (4, 4, {"finished": 3, "failed": 1})
    assert [row["reward"] for row in found["rows"]] == [20.0, 10.0]
    assert {row["hparams.gamma"] for row in found["rows"]} == {0.99}
    assert [row["eval/return_mean"] for row in found["rows"]] == [20.0, 10.0]


def test_new_deleted_and_renamed_runs(tmp_path: Path) -> None:
    runs = some_runs(tmp_path)
    found = table(tmp_path)
    assert not found.refresh()
    version = found.version
    assert not found.refresh()
    assert found.version == version
    record(fake_run(tmp_path, 9))
    assert found.refresh()
    assert len(found.select()) == 5
    shutil.rmtree(runs[0])
    with pytest.raises(NoRunError, match="deleted or renamed"):
        found.find(runs[0].name)
    runs[1].rename(tmp_path / "by hand")
    found.refresh()
    assert runs[0].name not in {ref.key for ref in found.select()}
    assert "by hand" in {ref.key for ref in found.select()}
    assert found.find("by hand").row["name"] == "best"


@pytest.mark.parametrize("key", ["..", "../x", "/etc", "", ".", "groups", "index.sqlite", "x" * 5000, "a\x00b"])
def test_keys_are_looked_up_and_never_joined(tmp_path: Path, key: str) -> None:
    some_runs(tmp_path / "runs")
    with pytest.raises(NoRunError):
        table(tmp_path / "runs").find(key)


def test_reading_only_writes_nothing(tmp_path: Path) -> None:
    runs = some_runs(tmp_path)
    fake_run(tmp_path, 7, reward=5.0)
    (tmp_path / FILE).chmod(0o444)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file() and FILE not in path.name}
    found = table(tmp_path, read_only=True)
    assert len(found.select("reward>0")) == 4
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert all(ref.row["recipe_sha256"] for ref in found.select())
    assert len(RunIndex(tmp_path).rows()) == len(runs)  # the new one was not added


def test_without_an_index_reading_only_makes_none(tmp_path: Path) -> None:
    fake_run(tmp_path, 0, reward=1.0)
    assert [ref.row["reward"] for ref in table(tmp_path, read_only=True).select("hparams.gamma>0.5")] == [1.0]
    assert not (tmp_path / FILE).exists()


def test_a_damaged_index_is_said_and_worked_around(tmp_path: Path) -> None:
    some_runs(tmp_path)
    for ending in ("-wal", "-shm"):
        (tmp_path / f"{FILE}{ending}").unlink(missing_ok=True)
    (tmp_path / FILE).write_bytes(b"this is no database" * 1000)
    found = table(tmp_path)
    assert len(found.select("reward>15 and hparams.gamma>0.5")) == 2
    assert "the run directories were read instead" in found.notes[0]
    assert not found.refresh()  # not again at every look


def test_an_output_directory_that_vanishes(tmp_path: Path) -> None:
    some_runs(tmp_path / "runs")
    found = table(tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs")
    found.refresh()
    assert found.select() == []
    assert "cannot be used" in found.notes[0]


def test_several_output_directories(tmp_path: Path) -> None:
    some_runs(tmp_path / "a")
    some_runs(tmp_path / "b")
    found = table(tmp_path / "a", tmp_path / "b")
    keys = {ref.key for ref in found.select("algorithm=ppo")}
    name = "ppo__CartPole-v1__seed0__20260101-000000"
    assert {name, f"1:{name}"} <= keys
    assert found.find(f"1:{name}").path == tmp_path / "b" / name
    assert len(found.select("hparams.gamma=0.99")) == 8


def test_live_values_lie_over_the_rows_of_running_runs(tmp_path: Path) -> None:
    run = fake_run(tmp_path, 0, reward=1.0, status="running")
    with sqlite3.connect(tmp_path / "none"):
        pass
    (run / ".lock").write_text(json.dumps({"pid": os.getpid(), "host": os.uname().nodename, "started": started()}))
    found = table(tmp_path)
    assert [ref.key for ref in found.running()] == [run.name]
    version = found.version
    found.set_live(run.name, {"env_steps": 777, "reward": 5.5})
    assert found.version > version
    assert found.find(run.name).row["env_steps"] == 777
    assert [ref.key for ref in found.select("reward>5")] == [run.name]


def started() -> float:
    import psutil

    return float(psutil.Process().create_time())


def test_groups_say_in_what_they_differ(tmp_path: Path) -> None:
    for number in range(4):
        run = fake_run(tmp_path, number)
        if number >= 2:
            config = run / "configs" / "resolved.yaml"
            config.write_text(config.read_text().replace("learning_rate: 0.0003", "learning_rate: 0.001"))
        record(run)
    found = table(tmp_path)
    groups = grouped(found, found.select())
    assert [group.label for group in groups] == ["learning_rate=0.001", "learning_rate=0.0003"]
    assert [[ref.row["seed"] for ref in group.runs] for group in groups] == [[2, 3], [0, 1]]
    by_rate = grouped(found, found.select(), ["hparams.learning_rate"])
    assert [group.label for group in by_rate] == ["learning_rate=0.001", "learning_rate=0.0003"]
    singles = grouped(found, found.select(), ["run"])
    assert len(singles) == 4
    assert len({group.label for group in singles}) == 4


def test_an_old_index_learns_its_recipes(tmp_path: Path) -> None:
    some_runs(tmp_path)
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("UPDATE runs SET recipe_sha256 = NULL")
    connection.commit()
    connection.close()
    assert all(ref.row["recipe_sha256"] for ref in table(tmp_path).select())
