"""Sweeps and searches for the page: scores, progress, places; a search is read without touching its journal."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from dashboard_cases import served
from sweep_cases import finish, searched

from rl_training.config.searches.sweeps import SweepConfig
from rl_training.dashboard.pages.sweeps import Sweeps
from rl_training.dashboard.reading.tables import NoRunError, RunTable
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.experiments.launching.tuning import JOURNAL


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    plan = SweepConfig("ppo/cartpole", sweep={"hparams.learning_rate": [1e-4, 1e-3]}, parallel_jobs=2)
    made = Sweep.create(plan, overrides={"output_dir": str(tmp_path)}, seeds=[0, 1])
    finish(made, {(0, 0): 10.0, (0, 1): 20.0, (1, 0): 50.0})
    return made


def table_of(folder: Path) -> RunTable:
    table = RunTable([folder])
    table.refresh()
    return table


def test_a_sweep(sweep: Sweep, tmp_path: Path) -> None:
    found = Sweeps(table_of(tmp_path)).answer(sweep.info.id)
    assert (found["kind"], found["keys"], found["metric"]) == ("sweep", ["hparams.learning_rate"], "eval/return_mean")
    assert [trial["trial"] for trial in found["trials"]] == [1, 0]
    assert found["trials"][1]["return"]["iqm"]["value"] == 15.0
    assert found["progress"]["counts"] == {"finished": 3, "waiting": 1}
    assert found["progress"]["seconds_left"] == pytest.approx(2.0 * 1 / 2)
    keys = {run["key"] for trial in found["trials"] for run in trial["runs"] if run["key"]}
    assert keys == {path.name for path in tmp_path.glob("ppo__*seed*")}


def test_by_http(sweep: Sweep, tmp_path: Path) -> None:
    with served(tmp_path) as site:
        listing = site.get("/api/sweeps")
        assert [(one["key"], one["trials"]) for one in listing["sweeps"]] == [(sweep.info.id, 2)]
        assert site.get(f"/api/sweeps/{sweep.info.id}")["progress"]["members"] == 4
        assert site.ask("/api/sweeps/nothing").status == 404


def test_a_damaged_record_is_one_line_of_the_list(sweep: Sweep, tmp_path: Path) -> None:
    (sweep.path / "sweep.json").write_text("{")
    (one,) = Sweeps(table_of(tmp_path)).listing()["sweeps"]
    assert "does not describe a sweep" in one["error"]
    with pytest.raises(NoRunError):
        Sweeps(table_of(tmp_path)).answer("../sweeps")


def test_a_search_is_looked_at_without_writing(tmp_path: Path) -> None:
    search = searched(tmp_path)
    journal = search.path / JOURNAL
    before = hashlib.sha256(journal.read_bytes()).hexdigest()
    found = Sweeps(table_of(tmp_path)).answer(search.info.id)
    assert hashlib.sha256(journal.read_bytes()).hexdigest() == before
    assert found["kind"] == "search"
    assert [trial["value"] for trial in found["search"]["trials"]] == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert "hparams.learning_rate" in found["search"]["importance"]
    assert json.dumps(found["trials"])
