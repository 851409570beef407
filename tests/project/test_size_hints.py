"""The size report runs over the whole project, counts rightly, and never fails a build."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "size_hints.py"


def test_report_runs_over_the_project_and_does_not_fail() -> None:
    result = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("size hints: ")
    assert len(result.stdout.splitlines()) == 1 + int(result.stdout.split()[2])


def test_hints_name_the_place_and_the_size() -> None:
    hints_of = runpy.run_path(str(TOOL))["hints_of"]
    body = "\n".join(["    x = 1"] * 60)
    wide = ", ".join(f"p{i}" for i in range(8))
    source = (
        f"def long():\n{body}\n\n\nclass C:\n    def fits(self, {wide}): ...\n    def wide(self, {wide}, *, q): ...\n"
    )
    assert [str(hint) for hint in hints_of(source, "a.py")] == [
        "  a.py:1 long(): 61 lines (about 60)",
        "  a.py:66 wide(): 9 parameters (about 8)",
    ]
    assert [str(hint) for hint in hints_of("\n" * 401, "b.py")] == ["  b.py: 401 lines (about 400)"]
