"""`rl note` writes notes into run.json and the index; filters find them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_cases import fake_run

from rl_training.cli import main
from rl_training.experiments.keeping.tracker import MAX_NOTES, ExperimentTracker, set_notes
from rl_training.runs.directory import RunDir
from rl_training.types import ConfigError

Captured = pytest.CaptureFixture[str]


def notes_of(run: Path) -> str | None:
    found: str | None = json.loads((run / "run.json").read_text())["notes"]
    return found


def test_notes_are_written_added_to_shown_and_removed(tmp_path: Path, capsys: Captured) -> None:
    run, where = fake_run(tmp_path), f"--output-dir={tmp_path}"
    assert main(["note", "latest", "entropy", "collapsed", where]) == 0
    assert notes_of(run) == "entropy collapsed"
    assert main(["note", "latest", "again", "--append", where]) == 0
    capsys.readouterr()
    assert main(["note", "latest", where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == "entropy collapsed\nagain"
    assert [row["notes"] for row in ExperimentTracker(tmp_path).find_experiments("notes~collapsed")] == [notes_of(run)]
    assert main(["show", "latest", where]) == 0
    assert "entropy collapsed" in capsys.readouterr().out
    assert main(["note", "latest", "--clear", where]) == 0
    assert notes_of(run) is None
    assert main(["note", "latest", where]) == 0
    assert capsys.readouterr().out.endswith("no notes\n")


def test_a_clear_with_a_text_is_refused(tmp_path: Path, capsys: Captured) -> None:
    fake_run(tmp_path)
    assert main(["note", "latest", "text", "--clear", f"--output-dir={tmp_path}"]) == 2
    assert "leave the text" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a\x1b[31m", "turned \u202e round", "x" * (MAX_NOTES + 1)])
def test_notes_that_a_terminal_would_obey_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="notes are up to"):
        set_notes(RunDir(fake_run(tmp_path)), text)


def test_secrets_do_not_get_into_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-123456789")
    run = fake_run(tmp_path)
    assert set_notes(RunDir(run), "used sk-123456789 here") == "used ${env:MY_API_KEY} here"
    assert "sk-123456789" not in (run / "run.json").read_text()
