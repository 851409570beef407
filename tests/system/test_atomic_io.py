"""Durable writes: the guarantee at each fault point, the order of disk operations, and the cleanup."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rl_training.system.atomic_io import (
    FAULT_VARIABLE,
    FileRecord,
    atomic_write,
    discard,
    fault_hook,
    remove_leftovers,
    write_file,
)


def operations_of(folder: Path) -> tuple[list[str], object]:
    """A hook that records its calls, with temporary names as `*`."""
    seen: list[str] = []

    def hook(operation: str, path: Path) -> None:
        name = "*" if path.name.startswith(".tmp-") else path.name
        seen.append(f"{operation} {'.' if path == folder else name}")

    return seen, hook


def test_atomic_write_syncs_the_file_before_and_the_folder_after_the_rename(tmp_path: Path) -> None:
    seen, hook = operations_of(tmp_path)
    with fault_hook(hook):  # type: ignore[arg-type]
        atomic_write(tmp_path / "latest", b"new")
    assert seen == ["create *", "write *", "fsync *", "rename latest", "fsync ."]
    assert (tmp_path / "latest").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["latest"]


@pytest.mark.parametrize("point", range(1, 6))
def test_a_failing_write_leaves_the_old_or_the_new_content_and_no_litter(tmp_path: Path, point: int) -> None:
    (tmp_path / "file").write_bytes(b"old")
    count = 0

    def full(operation: str, path: Path) -> None:
        nonlocal count
        count += 1
        if count == point:
            raise OSError(errno.ENOSPC, "No space left on device")

    with fault_hook(full), pytest.raises(OSError, match="No space left"):
        atomic_write(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == (b"new" if point == 5 else b"old")
    assert os.listdir(tmp_path) == ["file"]


def test_write_file_counts_and_hashes_and_never_overwrites(tmp_path: Path) -> None:
    big = bytes(range(256)) * 40_000
    record = write_file(tmp_path / "f", [b"head", memoryview(big), b""])
    assert record == FileRecord(hashlib.sha256(b"head" + big).hexdigest(), 4 + len(big))
    assert (tmp_path / "f").read_bytes() == b"head" + big
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "f", [b"x"])
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "link", [b"x"])
    assert not (tmp_path / "elsewhere").exists()


def test_links_are_replaced_and_removed_but_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("keep")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").symlink_to(outside / "precious")
    atomic_write(folder / "file", b"ours")
    (folder / "gone").symlink_to(outside)
    (folder / ".tmp-0123456789abcdef").symlink_to(outside)
    discard([folder / "gone"])
    remove_leftovers(folder)
    assert (outside / "precious").read_text() == "keep"
    assert os.listdir(folder) == ["file"]
    assert not (folder / "file").is_symlink()


def test_only_our_own_leftovers_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-0123456789abcdef").mkdir()
    (tmp_path / ".tmp-0123456789abcdef" / "half").write_text("x")
    (tmp_path / ".tmp-fedcba9876543210").write_text("x")
    for name in (".tmp-notes", ".tmp-0123456789abcdeg", "tmp-0123456789abcdef", ".tmp-0123456789abcdef.txt"):
        (tmp_path / name).write_text("a user's own")
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(
        [".tmp-notes", ".tmp-0123456789abcdeg", "tmp-0123456789abcdef", ".tmp-0123456789abcdef.txt"]
    )


def test_discard_renames_everything_and_syncs_before_it_removes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    seen, hook = operations_of(tmp_path)
    with fault_hook(hook):  # type: ignore[arg-type]
        discard([tmp_path / "a", tmp_path / "b"])
        discard([])
    assert seen == ["rename *", "rename *", "fsync .", "remove *", "remove *"]
    assert os.listdir(tmp_path) == []


PROGRAM = """
import sys, pathlib
from rl_training.system.atomic_io import atomic_write
atomic_write(pathlib.Path(sys.argv[1]), b"new")
"""


@pytest.mark.parametrize(
    ("point", "status", "content"), [("4", -signal.SIGKILL, b"old"), ("6", 0, b"new"), ("", 0, b"new")]
)
def test_the_environment_variable_kills_at_the_nth_point(
    tmp_path: Path, point: str, status: int, content: bytes
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    environment = {**os.environ, FAULT_VARIABLE: point}
    result = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "file")], env=environment, check=False)
    assert result.returncode == status
    assert (tmp_path / "file").read_bytes() == content


@pytest.mark.parametrize("value", ["0", "-1", "rename", "1.5"])
def test_a_nonsense_variable_is_refused(tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from rl_training.system import atomic_io
    from rl_training.types import ConfigError

    monkeypatch.setenv(FAULT_VARIABLE, value)
    with pytest.raises(ConfigError, match="must be a positive integer"):
        atomic_io._hook_from_environment()
