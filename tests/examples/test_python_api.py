"""The notebook-style example runs as it stands and says what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_runs_from_top_to_bottom(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "python_api.py"), "500"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("budget spent after 512 steps")
    assert lines[1].startswith("return ")
    assert lines[3] == "now at 1024 steps"
    assert lines[4].startswith("corridor: -0.5")
    assert not list(tmp_path.iterdir()), "runs go to a temporary folder"
