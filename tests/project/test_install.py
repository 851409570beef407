"""Set-up refuses a Python it cannot use before it touches anything, and the Makefile offers what is documented."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = "install train test test-slow bench bench-scores check format lint type docs clean help"


def install(python: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools" / "install.sh"), python, str(tmp_path / "venv"), "dev"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_missing_python_is_named(tmp_path: Path) -> None:
    result = install("python-that-is-not-there", tmp_path)
    assert result.returncode == 1
    assert "there is no 'python-that-is-not-there' here; install Python 3.11 or newer" in result.stderr
    assert not (tmp_path / "venv").exists()


def test_an_old_python_is_refused_with_its_version(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\ncase "$2" in *python_version*) echo 3.9.18 ;; *) exit 1 ;; esac\n')
    old.chmod(0o755)
    result = install(str(old), tmp_path)
    assert result.returncode == 1
    assert f"needs Python 3.11 or newer, and '{old}' is 3.9.18; name another: make PYTHON=" in result.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("target", TARGETS.split())
def test_make_help_lists(target: str) -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  make {target} +\S", shown, re.M)


def test_the_benchmarks_of_make_bench_exist() -> None:
    listed = re.search(r"^BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert listed is not None
    assert [name for name in listed[1].split() if not (ROOT / "benchmarks" / f"{name}.py").is_file()] == []
