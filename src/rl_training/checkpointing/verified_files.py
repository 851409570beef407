"""Files of known length and SHA-256: opened without following links, verified before their content is used.

Shared by checkpoint folders and segments. CheckpointError says what is wrong, OSError comes from the file system.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rl_training.system import memory_limits
from rl_training.system.atomic_io import CHUNK, FileRecord
from rl_training.types import Array, CheckpointError

MAX_JSON_BYTES = 32 * 2**20
ASK_MEMORY_BYTES = 2**30
"""Files larger than this are compared with the free memory before they are read."""


class DamagedCheckpointError(CheckpointError):
    """The files differ from what was saved; another checkpoint may still be intact."""


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A file descriptor of a folder; CheckpointError for a symbolic link."""
    if folder.is_symlink():
        raise CheckpointError(f"{folder.name} is a symbolic link")
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def regular_file(folder_fd: int, name: str, record: FileRecord | None) -> Iterator[tuple[int, int]]:
    """An open file and its length, which must be the recorded one (without a record, at most MAX_JSON_BYTES)."""
    try:
        # non-blocking: a named pipe must not hang the reader
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder_fd)
    except FileNotFoundError as error:
        raise CheckpointError(f"{name} is missing") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{name} is not a regular file")
        if record is None and status.st_size > MAX_JSON_BYTES:
            raise CheckpointError(f"{name} is too large")
        if record is not None and status.st_size != record.bytes:
            raise CheckpointError(f"{name} has {status.st_size} bytes instead of {record.bytes}")
        yield fd, status.st_size
    finally:
        os.close(fd)


def read_file(folder_fd: int, name: str, record: FileRecord | None) -> Array:
    """The bytes of a file, verified by the recorded checksum.

    A file longer than one chunk is hashed on disk first, so that a damaged one takes no memory. What is then read is
    hashed again, because the file may have changed in between.
    """
    with regular_file(folder_fd, name, record) as (fd, size):
        refuse_beyond_memory(name, size)
        if record is not None and size > CHUNK:
            _check_digest(fd, name, record)
            os.lseek(fd, 0, os.SEEK_SET)
        data = np.empty(size, np.uint8)
        view = data.data
        position = 0
        while position < size:
            count = os.readv(fd, [view[position : position + CHUNK]])
            if count == 0:
                raise CheckpointError(f"{name} ended while it was read")
            position += count
    if record is not None and hashlib.sha256(view).hexdigest() != record.sha256:
        raise CheckpointError(f"{name}: checksum differs")
    return data


def hash_file(folder_fd: int, name: str, record: FileRecord) -> None:
    """CheckpointError unless the file on disk has the recorded checksum; reads one chunk at a time."""
    with regular_file(folder_fd, name, record) as (fd, _):
        _check_digest(fd, name, record)


def _check_digest(fd: int, name: str, record: FileRecord) -> None:
    digest = hashlib.sha256()
    while chunk := os.read(fd, CHUNK):
        digest.update(chunk)
    if digest.hexdigest() != record.sha256:
        raise CheckpointError(f"{name}: checksum differs")


def refuse_beyond_memory(name: str, size: int) -> None:
    """CheckpointError for a large file that does not fit into free memory."""
    if size <= ASK_MEMORY_BYTES:
        return
    found = memory_limits.room()
    if size > found.bytes:
        raise CheckpointError(
            f"{name} has {size / 1e9:.1f} GB, but only {found.bytes / 1e9:.1f} GB can be had ({found.limit})"
        )
