"""Bands and comparisons are those of `rl compare --json`, and each group stands for itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison_cases import two_algorithms

from rl_training.cli import main
from rl_training.dashboard.reading.columns import ColumnStore
from rl_training.dashboard.reading.curves import Axis
from rl_training.dashboard.reading.tables import RunTable
from rl_training.dashboard.reading.views import BandRequest, Bands, compared, comparison_answer
from rl_training.types import ConfigError


@pytest.fixture
def table(tmp_path: Path) -> RunTable:
    two_algorithms(tmp_path, tasks=("CartPole-v1", "Acrobot-v1"))
    found = RunTable([tmp_path])
    found.refresh()
    return found


def compare_json(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main(["compare", *words, f"--output-dir={folder}", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("metric", ["reward", "loss", "eval/return_mean"])
def test_bands_equal_those_of_the_command(
    table: RunTable, tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: str
) -> None:
    found = Bands(ColumnStore()).answer(table, table.select(), BandRequest(metric, by=("algorithm",)))
    record = compare_json(tmp_path, capsys, "status=finished", "--by", "algorithm", "--metrics", metric)
    expected = {(one["entry"], one["task"]): one for one in record["metrics"][0]["curves"]}
    assert len(found["groups"]) == len(expected) == 4
    for band in found["groups"]:
        one = expected[band["label"].split(" · ")[0], band["task"]]
        for mine, theirs in (("x", "env_steps"), ("iqm", "iqm"), ("low", "low"), ("high", "high")):
            np.testing.assert_allclose(band[mine], one[theirs], rtol=0, atol=1e-9)
        assert (band["n"], band["of"], band["draws"], band["preliminary"]) == (4, 4, 1000, False)


def test_hiding_a_group_changes_no_other(table: RunTable) -> None:
    bands, request = Bands(ColumnStore()), BandRequest(by=("algorithm",))
    both = {band["id"]: band for band in bands.answer(table, table.select(), request)["groups"]}
    alone = Bands(ColumnStore()).answer(table, table.select("algorithm=ppo"), request)["groups"]
    assert len(alone) == 2
    for band in alone:
        assert {**band, "label": None} == {**both[band["id"]], "label": None}


def test_a_zoom_computes_the_part_anew(table: RunTable) -> None:
    refs = table.select("env=CartPole-v1 and algorithm=ppo")
    (band,) = Bands(ColumnStore()).answer(table, refs, BandRequest(axis=Axis("env_steps", 1500, 2500)))["groups"]
    assert (band["x"][0], band["x"][-1]) == (1000, 3000)


def test_runs_without_the_metric_are_counted_and_not_hidden(table: RunTable) -> None:
    refs = table.select("env=CartPole-v1 and algorithm=ppo")
    (refs[0].path / "logs" / "metrics.jsonl").write_text("")
    (band,) = Bands(ColumnStore()).answer(table, refs, BandRequest())["groups"]
    assert (band["n"], band["of"]) == (3, 4)


def test_bands_follow_the_logs(table: RunTable) -> None:
    refs, bands = table.select("env=CartPole-v1 and algorithm=ppo"), Bands(ColumnStore())
    (before,) = bands.answer(table, refs, BandRequest())["groups"]
    for ref in refs:
        with open(ref.path / "logs" / "metrics.jsonl", "a") as log:
            log.write('{"env_steps":4000,"eval/return_mean":100.0}\n')
    (after,) = bands.answer(table, refs, BandRequest())["groups"]
    assert (before["x"][-1], after["x"][-1], after["iqm"][-1]) == (3000, 4000, 100.0)


def test_a_running_group_is_marked_preliminary(table: RunTable) -> None:
    refs = table.select("env=CartPole-v1 and algorithm=ppo")
    refs[0].row["status"] = "running"
    (band,) = Bands(ColumnStore()).answer(table, refs, BandRequest())["groups"]
    assert (band["preliminary"], band["draws"]) == (True, 200)


def test_a_column_has_no_curve(table: RunTable) -> None:
    with pytest.raises(ConfigError, match="has no curve"):
        Bands(ColumnStore()).answer(table, table.select(), BandRequest("seconds"))


def test_comparisons_equal_those_of_the_command(
    table: RunTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = comparison_answer(compared(table, table.select(), ["algorithm"], ["reward"], None))
    record = compare_json(tmp_path, capsys, "status=finished", "--by", "algorithm")
    by_entry = {one["entry"]: one for one in found["metrics"][0]["overall"]}
    assert by_entry == {one["entry"]: one for one in json.loads(json.dumps(record["metrics"][0]["overall"]))} or (
        json.loads(json.dumps(by_entry)) == {one["entry"]: one for one in record["metrics"][0]["overall"]}
    )
    assert {table["title"] for table in found["tables"]}
    assert found["entries"][0]["runs"]
