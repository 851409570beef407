"""Durable writes: a crash, a full disk or a power cut leaves the old file or the new one, never half of one.

Every create, write, fsync, rename and removal passes `fault_point`, so that tests can make each of them fail, or kill
the process there. A fence around a folder is asked at the same places: it refuses every change once another process has
taken the folder over. File formats are up to checkpoints, runs and logs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rl_training.types import ConfigError

FaultHook = Callable[[str, Path], None]
"""Called with the operation (create, write, fsync, rename, remove) and its path, just before the operation."""
FAULT_VARIABLE = "RL_TRAINING_FAULT_POINT"
"""Environment variable: n kills the process with SIGKILL at its n-th fault point (1, 2, ...)."""

TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{16}")
"""Names of files that are being written or removed; readers ignore them."""
CHUNK = 4 * 2**20


@dataclass(frozen=True)
class FileRecord:
    """Expected content of a file: its SHA-256 and its length."""

    sha256: str
    bytes: int


# -- faults -----------------------------------------------------------------------------------------------------------


class KillAtPoint:
    """A hook that kills the process with SIGKILL at its n-th call: no cleanup, no flush."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, operation: str, path: Path) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _hook_from_environment() -> FaultHook | None:
    value = os.environ.get(FAULT_VARIABLE)
    if not value:
        return None
    if not (value.isascii() and value.isdecimal() and int(value) > 0):
        raise ConfigError(f"{FAULT_VARIABLE}={value!r} must be a positive integer; unset it outside fault tests")
    return KillAtPoint(int(value))


_hook: FaultHook | None = _hook_from_environment()


@contextmanager
def fault_hook(hook: FaultHook) -> Iterator[None]:
    """Within the block every fault point calls `hook`, which may count, raise or kill."""
    global _hook
    previous, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = previous


_fences: dict[str, Callable[[], None]] = {}
"""Folder, with a slash at its end, to the check that is made before anything in it changes."""


def put_up_fence(folder: Path, check: Callable[[], None]) -> None:
    """From now on `check` is called before this process changes anything below `folder`, and raises to prevent it."""
    _fences[f"{folder}{os.sep}"] = check


def take_down_fence(folder: Path) -> None:
    _fences.pop(f"{folder}{os.sep}", None)


def fault_point(operation: str, path: Path) -> None:
    """Call the fault hook before a disk operation; code that writes without the functions below calls it too."""
    if _fences and operation != "fsync":
        name = os.path.abspath(path)
        for folder, check in list(_fences.items()):
            if name.startswith(folder):
                check()
    if _hook is not None:
        _hook(operation, path)


# -- operations -------------------------------------------------------------------------------------------------------


def temporary_path(folder: Path) -> Path:
    """A fresh name in `folder` that `remove_leftovers` recognises."""
    return folder / f".tmp-{secrets.token_hex(8)}"


def fsync_dir(path: Path) -> None:
    """Make the names in a folder (files created, renamed, removed) survive a power cut."""
    fault_point("fsync", path)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder, and say so with EINVAL
            raise
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Create a folder, with those above it that are missing, so that its name survives a power cut."""
    if path.is_dir():
        return
    make_folder(path.parent)
    fault_point("create", path)
    path.mkdir(exist_ok=True)
    fsync_dir(path.parent)


def sync_file(path: Path) -> None:
    """Make the contents of a file written by other code survive a power cut."""
    fault_point("fsync", path)
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(folder: Path) -> None:
    """`sync_file` for all files below a folder, and `fsync_dir` for its folders; links are not followed."""
    for root, _, files in os.walk(folder, topdown=False):
        for name in files:
            if not (path := Path(root) / name).is_symlink():
                sync_file(path)
        fsync_dir(Path(root))


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> FileRecord:
    """Create `path` (it must not exist) from pieces of bytes, fsync it, and return what was written.

    Memory views are written a chunk at a time, without a copy in memory.
    """
    digest = hashlib.sha256()
    size = 0
    fault_point("create", path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            for start in range(0, len(view), CHUNK):
                piece = view[start : start + CHUNK]
                digest.update(piece)
                fault_point("write", path)
                written = 0
                while written < len(piece):
                    written += os.write(fd, piece[written:])
                size += len(piece)
        fault_point("fsync", path)
        os.fsync(fd)
    finally:
        os.close(fd)
    return FileRecord(digest.hexdigest(), size)


def rename(source: Path, target: Path) -> None:
    """Move within a folder, replacing a file of that name. Durable only after `fsync_dir`."""
    fault_point("rename", target)
    os.replace(source, target)


def atomic_write(path: Path, data: bytes) -> None:
    """Put `data` into `path`: readers see the old content or the new one, also after a crash at any moment.

    A symbolic link at `path` is replaced, never followed. OSError if it fails; the old content is then untouched.
    """
    temporary = temporary_path(path.parent)
    try:
        write_file(temporary, [data])
        rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    fsync_dir(path.parent)


def disk_state(folder: Path) -> str | None:
    """Why a file system accepts no more data: read-only or full; None if it reports neither."""
    with suppress(OSError):
        status = os.statvfs(folder)
        if status.f_flag & os.ST_RDONLY:
            return "the disk is read-only"
        if status.f_bavail == 0 or (status.f_files > 0 and status.f_favail == 0):
            return "the disk is full"
    return None


def discard(paths: Collection[Path]) -> None:
    """Remove files, links or folders of one parent so that a crash leaves each whole or under a temporary name."""
    doomed = []
    for path in paths:
        temporary = temporary_path(path.parent)
        rename(path, temporary)
        doomed.append(temporary)
    if doomed:
        # the new names must be on the disk first, or a power cut could bring back an old name without its contents
        fsync_dir(doomed[0].parent)
    for temporary in doomed:
        _remove(temporary)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process was writing or removing in `folder`; other names are never touched."""
    for name in os.listdir(folder):
        if TEMPORARY.fullmatch(name):
            _remove(folder / name)


def _remove(path: Path) -> None:
    fault_point("remove", path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
