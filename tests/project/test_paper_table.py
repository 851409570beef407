"""The page from a first run to a paper table is run as it stands, in an empty folder, and leaves what it says (slow).

The fast tests plan its sweep and its search; test_help_examples.py reads every command of every page.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import pytest
from tutorial_steps import run_page, steps_of

from rl_training.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "paper-table.md"


@pytest.mark.parametrize(
    ("command", "plan"),
    [
        ("train", "Plan of each of 2 runs"),
        ("sweep", "2 trials x 1 seeds = 2 runs"),
        ("tune", "2 trials x up to 1 seeds on ppo/cartpole"),
    ],
)
def test_its_commands_plan_what_the_page_runs(
    command: str, plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = steps_of(PAGE)
    for step in steps:
        if step.kind == "file":
            Path(step.title).write_text(step.text)
    lines = [step.text for step in steps if step.text.startswith(f"rl {command} ")]
    several = next(line for line in lines if command != "train" or "--seed" in line)
    assert main([*shlex.split(several)[1:], "--dry-run"]) == 0
    assert plan in capsys.readouterr().out


@pytest.mark.slow
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
