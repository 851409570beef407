"""JSON Lines: rows of plain values from tensors and NumPy scalars, readers, and the append-only file of a log."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_training.system.atomic_io import fault_point, fsync_dir
from rl_training.types import RunError

Row = dict[str, Any]
"""Flat names to plain values: numbers, strings, booleans, None, and lists of them."""

COUNTERS = ("env_steps", "updates", "episodes")
BUFFER_BYTES = 2**16
TAIL_BYTES = 2**16
CHUNK = 2**20
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_PLAIN_TYPES = frozenset({float, int, str, bool, type(None)})


def plain_row(row: Mapping[str, Any], *, finite: bool = False) -> Row:
    """A row of plain values; nested mappings become "a/b" keys. With `finite`, NaN and infinities become None."""
    plain: Row = {}
    for key, value in row.items():
        if type(value) in _PLAIN_TYPES:
            plain[key] = value
        elif isinstance(value, Mapping):
            plain.update({f"{key}/{name}": item for name, item in plain_row(value).items()})
        else:
            plain[str(key)] = _plain_value(value, key)
    return _finite(plain) if finite else plain


def encode_row(row: Row) -> bytes:
    """One line of JSON. JSON has no NaN or Infinity, so they are written as null; the key stays."""
    try:
        text = _ENCODER.encode(row)
    except ValueError:
        text = _ENCODER.encode(_finite(row))
    return text.encode() + b"\n"


def eval_name(key: str) -> str:
    """The metric name of an evaluation's field: "return_mean" is "eval/return_mean"; counters keep their name."""
    return key if key in COUNTERS or "/" in key else f"eval/{key}"


def _plain_value(value: Any, key: str) -> Any:
    if type(value) in _PLAIN_TYPES:
        return value
    if hasattr(value, "tolist"):  # NumPy, torch and jax, scalars and arrays alike
        return _plain_value(value.tolist(), key)
    if isinstance(value, list | tuple):
        return [_plain_value(item, key) for item in value]
    for kind in (bool, int, float, str):  # enums and other subclasses
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"cannot log '{key}': it is a {type(value).__name__}; log numbers, strings or lists of them")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


# -- reading ----------------------------------------------------------------------------------------------------------


def parse_row(line: bytes) -> Row | None:
    """A line of a log as a row; None if it is damaged, incomplete or not a JSON object."""
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a JSONL file; none if it is missing. Damaged lines, and a last one still being written, are
    skipped."""
    if not path.is_file():
        return
    with open(path, "rb") as lines:
        for line in lines:
            row = parse_row(line)
            if row is not None:
                yield row


def tail_rows(path: Path, size: int = TAIL_BYTES) -> list[Row]:
    """The complete rows in the last `size` bytes of a JSONL file, which another process may be appending to."""
    try:
        with open(path, "rb") as file:
            start = max(file.seek(0, os.SEEK_END) - size, 0)
            file.seek(start)
            lines = file.read().split(b"\n")
    except OSError:
        return []
    rows = [parse_row(line + b"\n") for line in lines[bool(start) : -1]]
    return [row for row in rows if row is not None]


def number_of(row: Mapping[str, Any], name: str) -> int | float | None:
    """The value of a row read from a file, if it is a finite number; else None."""
    value = row.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer larger than any float
        return None


def steps_of(row: Mapping[str, Any]) -> int | None:
    """How far a row's run was: its `env_steps`, or its `updates` where no environment was stepped (offline runs); None
    if they are missing or not a count."""
    steps = number_of(row, "env_steps")
    if steps == 0:
        steps = number_of(row, "updates") or 0
    return None if steps is None or not 0 <= steps < 2**63 else int(steps)


def first_bad_row(path: Path) -> int | None:
    """The number, from 1, of the first line of a log that is not a row; None if all are."""
    with open(path, "rb") as lines:
        return next((number for number, line in enumerate(lines, 1) if parse_row(line) is None), None)


def digest_of(path: Path) -> hashlib._Hash:
    """SHA-256 of a file, as a hash object that can be updated with what is appended later."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest


# -- writing ----------------------------------------------------------------------------------------------------------


class AppendFile:
    """A buffered append-only file with a known length and checksum, which can be truncated to an earlier state."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_new = not path.exists()
        """Whether its directory entry has yet to be synced to disk."""
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._error(error) from error
        self._buffer = bytearray()
        self._unsynced = False
        self._digest: hashlib._Hash | None = None
        """Running hash of the content, kept up to date from the first call of `checksum` on."""

    def append(self, data: bytes) -> None:
        self._buffer += data
        if self._digest is not None:
            self._digest.update(data)
        if len(self._buffer) > BUFFER_BYTES:
            self.flush()

    def end_line(self) -> None:
        """Close a last line that was cut off, so that the next row does not become part of it."""
        if self.length() == 0:
            return
        with open(self.path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                self.append(b"\n")

    def flush(self) -> None:
        """Hand the buffer to the operating system, so that it survives the end of this process."""
        while self._buffer:
            try:
                fault_point("write", self.path)
                written = os.write(self._descriptor, self._buffer)
            except OSError as error:
                raise self._error(error) from error
            # removed from the buffer at once, so that a later attempt does not write it again
            del self._buffer[:written]
            self._unsynced = True

    def sync(self) -> None:
        """Flush, and wait until the data is on disk."""
        self.flush()
        if self._unsynced:
            try:
                fault_point("fsync", self.path)
                os.fsync(self._descriptor)
            except OSError as error:
                if error.errno != errno.EINVAL:  # pipes and some file systems cannot
                    raise self._error(error) from error
            self._unsynced = False
        if self._is_new:
            try:
                fsync_dir(self.path.parent)
            except OSError as error:
                raise self._error(error) from error
            self._is_new = False

    def length(self) -> int:
        """Length of the file in bytes, including the buffer."""
        return os.fstat(self._descriptor).st_size + len(self._buffer)

    def checksum(self) -> str:
        """SHA-256 of the content, including the buffer. The file is read at the first call only; from then on every
        append updates the hash, so that later calls cost nothing."""
        if self._digest is None:
            self.flush()
            is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)  # reading a pipe would block
            try:
                self._digest = digest_of(self.path) if is_file else hashlib.sha256()
            except OSError as error:
                raise self._error(error) from error
        return self._digest.hexdigest()

    def cut_back(self, length: int, sha256: str | None) -> str | None:
        """Restore the file to its first `length` bytes, with this checksum (None: not known). If that is not possible,
        keep the complete rows up to there and return what is wrong with them."""
        actual = self.length()
        self.truncate(min(actual, length))
        differs = actual >= length and sha256 is not None and self.checksum() != sha256
        if actual >= length and not differs:
            return None
        self.truncate(whole_rows(self.path))
        wrong = f"lacks {length - actual} of {length} bytes"
        if differs:
            bad = first_bad_row(self.path)
            wrong = f"differs in its first {length} bytes"
            wrong += f" (row {bad} cannot be read)" if bad is not None else " (every row can be read)"
        return wrong

    def truncate(self, length: int) -> None:
        """Cut the file back to `length` bytes."""
        self._buffer.clear()
        self._digest = None
        try:
            fault_point("write", self.path)
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise self._error(error) from error
        self._unsynced = True

    def close(self) -> None:
        if self._descriptor >= 0:
            try:
                self.sync()
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def _error(self, error: OSError) -> RunError:
        cure = "check its permissions"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            cure = "free some space, then `rl resume` continues from the last checkpoint"
        elif error.errno == errno.EFBIG:
            cure = "raise the limit on the size of files (ulimit -f), then `rl resume` continues"
        return RunError(f"cannot write '{self.path}': {error.strerror}; {cure}")


def whole_rows(path: Path) -> int:
    """The length of a file up to the end of its last complete line."""
    with open(path, "rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position > 0:
            start = max(position - TAIL_BYTES, 0)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            position = start
    return 0
