"""Exports are read back by other tools: csv, json, DuckDB, and what marl-eval asks of its input."""

from __future__ import annotations

import csv
import doctest
import io
import json
import re
import sys
from pathlib import Path

import duckdb
import pytest
from comparison_cases import by_algorithm, scored_run, two_algorithms
from latex_reader import read_table

from rl_training.experiments.analysis import export as export_module
from rl_training.experiments.analysis.compare import Comparison, compare
from rl_training.experiments.analysis.entries import find_entries
from rl_training.experiments.analysis.export import CONTENTS, FORMATS, csv_cell, export, marl_eval, rows_of, unequal
from rl_training.types import ConfigError, RunError


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("export")
    two_algorithms(folder)
    return by_algorithm(folder, "reward", "loss")


def test_a_row_per_run(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(export(comparison, "csv").decode())))
    assert [(row["entry"], row["seed"], row["reward"]) for row in rows][3:5] == [
        ("ppo", "3", "70.0"),
        ("a2c", "0", "10.0"),
    ]
    assert rows[0]["peak_memory_bytes"] == "500000000.0"
    assert json.loads(export(comparison, "json"))[0]["loss"] == 1 / 40


def test_a_row_per_entry(comparison: Comparison) -> None:
    rows = json.loads(export(comparison, "json", "summary"))
    assert [(row["metric"], row["entry"], row["runs"]) for row in rows] == [
        ("reward", "ppo", 4), ("reward", "a2c", 4), ("loss", "ppo", 4), ("loss", "a2c", 4),
    ]  # fmt: skip
    assert (rows[1]["iqm"], rows[1]["mean"], rows[1]["threshold"], rows[1]["reached"]) == (25.0, 30.0, 25.0, 2)


def test_a_row_per_point(comparison: Comparison) -> None:
    rows = json.loads(export(comparison, "json", "curves"))
    assert len(rows) == 2 * 8 * 3
    assert [(row["env_steps"], row["value"]) for row in rows[:3]] == [(1000, 10.0), (2000, 20.0), (3000, 40.0)]


@pytest.mark.parametrize("content", CONTENTS)
def test_parquet_is_the_same_rows(comparison: Comparison, content: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(export(comparison, "parquet", content))
    with duckdb.connect() as connection:
        found = connection.read_parquet(str(path))
        assert [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] == rows_of(comparison, content)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("form", ["latex", "markdown"])
def test_every_content_is_a_table(comparison: Comparison, form: str, content: str) -> None:
    text = export(comparison, form, content).decode()
    num_rows = {"summary": 2, "runs": 8, "curves": 48}[content]
    assert len(read_table(text).rows if form == "latex" else text.splitlines()[1:]) == num_rows + 1


def test_the_layout_of_marl_eval(comparison: Comparison) -> None:
    layout = json.loads(export(comparison, "marl-eval"))
    assert list(layout) == ["gymnasium"]
    assert {name: list(runs) for name, runs in layout["gymnasium"]["cartpole-v1"].items()} == {
        name: ["seed_0", "seed_1", "seed_2", "seed_3"] for name in ("ppo", "a2c")
    }
    run = layout["gymnasium"]["cartpole-v1"]["ppo"]["seed_3"]
    assert list(run) == ["step_0", "step_1", "step_2", "absolute_metrics"]
    assert run["step_1"] == {"step_count": 2000, "return": [34.0, 36.0], "length": [5, 5]}
    assert run["absolute_metrics"] == {"return": [69.0, 71.0], "length": [5, 5]}
    assert unequal(layout) is None


def test_what_marl_eval_will_refuse_is_said(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    scored_run(tmp_path, 50, [1.0, 2.0, 3.0], seed=3)
    layout = marl_eval(by_algorithm(tmp_path))
    assert list(layout["gymnasium"]["cartpole-v1"]["ppo"])[-1] == "seed_3_2"  # the second of that seed
    assert "the same algorithms, runs and evaluations" in (unequal(layout) or "")


def test_runs_without_a_log(tmp_path: Path) -> None:
    run = scored_run(tmp_path, 0, [1.0, 2.0, 3.0])
    for name in ("evals", "metrics"):
        (run / "logs" / f"{name}.jsonl").unlink()
    found = compare(find_entries([run], tmp_path))
    with pytest.raises(RunError, match="has no evaluations"):
        export(found, "marl-eval")
    with pytest.raises(RunError, match="there are no curves"):
        export(found, "csv", "curves")


def test_hostile_texts_stay_in_their_cells(tmp_path: Path) -> None:
    run = scored_run(tmp_path, 0, [1.0, 2.0, 3.0], env_id="../../x\x00<b>\u202e" + "n" * 300)
    record = json.loads((run / "run.json").read_text())
    name = 'a","b\n=cmd|\x1b[31m' + "n" * 300
    (run / "run.json").write_text(json.dumps({**record, "name": name, "tags": ["t\r\n1"]}))
    found = compare(find_entries([run], tmp_path))
    for form in FORMATS:
        data = export(found, form)
        assert b"\x1b" not in data
        assert b"\x00" not in data or form == "parquet"
    (row,) = csv.DictReader(io.StringIO(export(found, "csv").decode()))
    assert row["name"] == 'a","b?=cmd|?[31m' + "n" * 300
    assert list(json.loads(export(found, "marl-eval"))) == ["../.."]  # a key, never a path


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", " =1", "\uff1dcmd", "=HYPERLINK('http://x')", "-x", "\t=1", "\r=1"]


@pytest.mark.parametrize("text", FORMULAS, ids=ascii)
def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path, text: str) -> None:
    run = scored_run(tmp_path, 0, [1.0, 2.0, 3.0])
    record = json.loads((run / "run.json").read_text())
    changes = {"name": text, "tags": [text, "b"], "env_id": text, "git": {"commit": text}}
    (run / "run.json").write_text(json.dumps({**record, **changes}))
    found = compare(find_entries([run], tmp_path))
    for content in CONTENTS:
        for row in csv.reader(io.StringIO(export(found, "csv", content).decode())):
            assert [cell for cell in row if cell[:1] in "=+-@\t\r\uff1d" and cell and not is_number(cell)] == []


def is_number(cell: str) -> bool:
    return re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", cell) is not None


@pytest.mark.parametrize("value", [-3.5, -1, "-3.5", "-3", "+2e-3", "-.5", "-inf", "ppo", "", None, "a=b", "a-b"])
def test_numbers_and_ordinary_texts_stay_what_they_are(value: object) -> None:
    assert csv_cell(value) == value


def test_without_duckdb_the_line_to_type_is_given(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigError, match=r"Parquet needs an extra: pip install 'rl-training\[analysis\]'"):
        export(comparison, "parquet")


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(export_module).failed == 0
