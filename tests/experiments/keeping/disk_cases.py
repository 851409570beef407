"""Real file systems of a few kilobytes, to be filled and made read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes at `place`; the test is skipped where mounting is not allowed."""
    place.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def remount(place: Path, how: str) -> None:
    """`ro` or `rw`."""
    _mount("-o", f"remount,{how}", str(place))


def fill(place: Path) -> None:
    """Leave not a byte."""
    with suppress(OSError), open(place / "filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], capture_output=True, check=True)
