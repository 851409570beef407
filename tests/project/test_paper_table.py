"""The page from a first run to a paper table is run as it stands, in an empty folder, and leaves what it says."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from tutorial_steps import run_page

PAGE = Path(__file__).parents[2] / "docs" / "paper-table.md"


@pytest.mark.timeout(900)  # ten processes that import torch, one after the other
def test_the_page_ends_in_a_table(tmp_path: Path) -> None:
    """One test, so that a distributed run of the tests trains everything once."""
    results = run_page(PAGE, tmp_path)
    assert {step.text: output for step, code, output in results if code != 0} == {}
    outputs = {step.text: output for step, _, output in results}
    entries = ("baseline", "rival", "tuned")
    assert "reproduced" in outputs["rl verify first"]
    assert all(re.search(rf"^{entry} +2 ", outputs["rl compare baseline rival tuned"], re.M) for entry in entries)
    assert [row.split(" ", 1)[0] for row in table_rows(tmp_path / "table.tex")] == list(entries)
    with open(tmp_path / "runs.csv") as file:
        assert len(list(csv.DictReader(file))) == 6
    assert (tmp_path / "report.html").read_text().count("<svg") == 4
    assert (tmp_path / "learning_rate.pdf").read_bytes().startswith(b"%PDF")
    runs = {path for path in (tmp_path / "runs").iterdir() if (path / "run.json").exists()}
    whole = {run for run in runs if (run / "checkpoints").exists()}
    tagged = {run for run in runs if json.loads((run / "run.json").read_text())["tags"] == ["paper"]}
    assert (len(runs), len(tagged)) == (11, 6)
    assert tagged <= whole
    assert len(whole) <= len(tagged) + 2  # the best two need not be among them


def table_rows(path: Path) -> list[str]:
    """The body of the table, the cells of a row joined by one blank."""
    body = path.read_text().split(r"\midrule")[1].split(r"\bottomrule")[0]
    return [" ".join(cell.strip() for cell in row.split("&")) for row in body.split("\\\\") if row.strip()]
