"""The demo runs as a user would run it, tells what it measured, and its exit code means something."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "harness_demo.py"


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(DEMO), *flags], capture_output=True, text=True, check=False)


def test_demo_reports_speed_memory_and_step() -> None:
    result = run()
    assert result.returncode == 0, result.stdout + result.stderr
    lines = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in result.stdout.splitlines())
    assert lines["environments"].startswith("4 x CartPole-v1, 4,000 env steps")
    assert float(lines["steps per second"].replace(",", "")) >= 1000
    assert float(lines["sampling rate"].split()[0].replace(",", "")) > 0
    assert lines["memory"].endswith("buffer 0.19 MB")  # 4000 x (2 x 16 obs + 8 action + 4 reward + 3 flags) bytes
    assert lines["stayed in step"] == "yes"


def test_demo_fails_below_the_asked_for_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(DEMO), "--num-steps", "50", "--min-rate", "1e12"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(DEMO), run_name="__main__")
    assert end.value.code == 1
    assert "too slow" in capsys.readouterr().err
