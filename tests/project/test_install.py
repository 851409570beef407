"""Set-up: an unfit Python is refused, core and extras are installed once each, the Makefile has what is documented."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = "install install-core train test test-slow bench bench-scores check format lint type docs clean help"


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


# -- core, extras, and environments that are made anew ----------------------------------------------------------------

PYTHON = """#!/bin/sh
# Stands in for Python and for the interpreter of an environment: writes down what it is asked for, installs nothing.
echo "$(basename "$0") $*" >> "@LOG@"
case "$*" in
*platform*) echo 3.12.1 ;;
"-m venv"*) for venv; do :; done; rm -rf "$venv"; mkdir -p "$venv/bin"
    cp "$0" "$venv/bin/python"
    printf '#!/bin/sh\\necho "pip 25 from %s/lib (python 3.12)"\\n' "$PWD/$venv" > "$venv/bin/pip"
    chmod +x "$venv/bin/pip" ;;
"-m pip show"*) test -e "$(dirname "$0")/../rl-training" ;;
"-m pip install"*) test ! -e "@LOG@.fails" && touch "$(dirname "$0")/../rl-training" ;;
esac
"""


class Clone:
    """A copy of what set-up needs, with a Python that installs nothing and tells what it was asked to install."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        self.log = folder / "log"
        (self.folder / "src").mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/install.sh"):
            (self.folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        self.python = folder / "python3"
        self.python.write_text(PYTHON.replace("@LOG@", str(self.log)))
        self.python.chmod(0o755)

    def make(self, target: str, *, fails: bool = False) -> list[str]:
        """What was made and installed, oldest first."""
        self.log.write_text("")
        failing = Path(f"{self.log}.fails")
        failing.touch() if fails else failing.unlink(missing_ok=True)
        command = ["make", target, f"PYTHON={self.python}"]
        result = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert (result.returncode != 0) is fails, result.stderr
        words = [line.split() for line in self.log.read_text().splitlines()]
        return [line[-1] if "pip" in line else "venv" for line in words if {"venv", "install"} & set(line[2:4])]


def test_the_core_alone_then_the_extras_on_top_and_nothing_twice(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    assert clone.make("install-core") == ["venv", "."]
    assert clone.make("install-core") == []
    assert clone.make("install") == ["rl-training[dev]"], "the core is not installed again"
    assert clone.make("install") == clone.make("install-core") == []


def test_everything_at_once(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    assert clone.make("install") == ["venv", ".", "rl-training[dev]"]
    assert clone.make("install-core") == []


def test_changed_pins_are_followed(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.make("install")
    newer = (clone.folder / ".venv" / "bin" / "python").stat().st_mtime + 60
    shutil.copy(ROOT / "constraints.txt", clone.folder / "constraints.txt")
    subprocess.run(["touch", "-d", f"@{newer}", str(clone.folder / "constraints.txt")], check=True)
    assert clone.make("install") == [".", "rl-training[dev]"]


def test_an_interrupted_environment_is_made_anew(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.make("install-core", fails=True)
    assert clone.make("install-core") == ["venv", "."]
    assert clone.make("install-core") == []


def test_extras_that_were_interrupted_make_the_whole_environment_anew(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.make("install-core")
    clone.make("install", fails=True)
    assert clone.make("install") == ["venv", ".[dev]"]
    assert clone.make("install-core") == clone.make("install") == []


def test_an_environment_that_moved_with_its_clone_is_made_anew(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.make("install")
    clone.folder = clone.folder.rename(tmp_path / "elsewhere")
    assert clone.make("install-core") == ["venv", "."]


@pytest.mark.parametrize("target", TARGETS.split())
def test_make_help_lists(target: str) -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  make {target} +\S", shown, re.M)


def test_the_benchmarks_of_make_bench_exist() -> None:
    listed = re.search(r"^BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert listed is not None
    assert [name for name in listed[1].split() if not (ROOT / "benchmarks" / f"{name}.py").is_file()] == []


def test_quick_benchmarks_are_the_same_scripts_in_short() -> None:
    command = ["make", "-n", "bench", "QUICK=1"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "benchmarks/$name.py --quick" in shown
    for name in ("startup", "run"):
        assert '"--quick"' in (ROOT / "benchmarks" / f"{name}.py").read_text()
