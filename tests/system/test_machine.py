"""Facts about versions, hardware and git, read quickly and without importing anything heavy."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_training.system import machine as environment_info
from rl_training.system.machine import MAX_DIFF_BYTES, MAX_UNTRACKED, GitQuery, hardware, versions
from rl_training.version import __version__


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "agent.py").write_text("gamma = 0.9\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_versions_come_from_metadata() -> None:
    found = versions()
    assert found["numpy"] == importlib.metadata.version("numpy")
    assert found["rl-training"] == __version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "no-such-package" not in found
    found.clear()
    assert versions()["numpy"] == importlib.metadata.version("numpy"), "what a caller does to it reaches nobody else"
    program = "import sys; from rl_training.system.machine import versions, hardware; versions(); hardware()"
    program += "; print([name for name in ('torch', 'numpy', 'gymnasium') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def test_hardware_of_this_machine() -> None:
    found = hardware()
    assert found["cores"] == os.cpu_count()
    assert 1 <= found["usable_cores"] <= found["cores"]
    assert found["memory_bytes"] > 2**28
    assert found["cpu"]
    assert isinstance(found["gpus"], list)


def test_a_clean_repository(repository: Path) -> None:
    state = GitQuery(repository).result()
    assert state is not None
    assert state.commit == git(repository, "rev-parse", "HEAD")
    assert (state.branch, state.diff, state.untracked, state.truncated) == ("main", "", (), False)


def test_a_dirty_repository_from_a_folder_inside_it(repository: Path) -> None:
    (repository / "agent.py").write_text("gamma = 0.99\n")
    (repository / "new file.py").write_text("x = 1\n")
    (repository / "folder").mkdir()
    state = GitQuery(repository / "folder").result()
    assert state is not None
    assert state.diff.splitlines()[-2:] == ["-gamma = 0.9", "+gamma = 0.99"]
    assert state.untracked == ("new file.py",)


def test_staged_changes_count_and_the_index_is_not_touched(repository: Path) -> None:
    (repository / "agent.py").write_text("gamma = 1.0\n")
    git(repository, "add", "agent.py")
    index = (repository / ".git" / "index").stat().st_mtime_ns
    state = GitQuery(repository).result()
    assert state is not None
    assert "+gamma = 1.0" in state.diff
    assert (repository / ".git" / "index").stat().st_mtime_ns == index


def test_a_detached_head_and_a_repository_without_commits(repository: Path, tmp_path: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    state = GitQuery(repository).result()
    assert state is not None
    assert state.branch is None
    assert state.commit is not None
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q", "-b", "main")
    (empty / "agent.py").write_text("x = 1\n")
    fresh = GitQuery(empty).result()
    assert fresh is not None
    assert (fresh.commit, fresh.branch, fresh.diff, fresh.truncated) == (None, "main", "", False)
    assert fresh.untracked == ("agent.py",)


def test_outside_a_repository_and_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert GitQuery(tmp_path).result() is None
    assert GitQuery(tmp_path / "missing").result() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert GitQuery(tmp_path).result() is None


def test_a_huge_change_is_cut(repository: Path) -> None:
    (repository / "agent.py").write_text("x" * 79 + "\n" * 1)
    (repository / "data.txt").write_text("".join(f"{i:079d}\n" for i in range(20_000)))
    git(repository, "add", "data.txt")
    for i in range(MAX_UNTRACKED + 5):
        (repository / f"new_{i}").touch()
    state = GitQuery(repository).result()
    assert state is not None
    assert state.truncated
    assert len(state.diff) == MAX_DIFF_BYTES
    assert len(state.untracked) == MAX_UNTRACKED


@pytest.mark.wall_clock
def test_a_git_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(environment_info, "GIT_SECONDS", 0.2)
    start = time.monotonic()
    assert GitQuery(tmp_path).result() is None
    assert time.monotonic() - start < 2.0


def test_programs_named_by_the_repository_are_not_run(repository: Path) -> None:
    mark = repository / "executed"
    program = repository / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    for key in ("diff.external", "core.fsmonitor", "diff.custom.textconv"):
        git(repository, "config", key, str(program))
    (repository / ".gitattributes").write_text("*.py diff=custom\n")
    (repository / "agent.py").write_text("gamma = 0.5\n")
    state = GitQuery(repository).result()
    assert state is not None
    assert "+gamma = 0.5" in state.diff
    assert not mark.exists()
