"""The notebook-style example runs as it stands and says what it promises."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_it_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["python_api.py", "500"])
    runpy.run_path(str(ROOT / "examples" / "python_api.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("budget spent after 512 steps")
    assert lines[1].startswith("return ")
    assert lines[3] == "now at 1024 steps"
    assert lines[4].startswith("corridor: -0.5")
    assert not list(tmp_path.iterdir()), "runs go to a temporary folder"
