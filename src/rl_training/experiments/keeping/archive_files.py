"""Extracts an untrusted `.tar.gz`, with limits on everything and plain files only.

Headers are parsed here and not by `tarfile`, which allocates memory for a long name or an extended header of any length
before it can be refused. Links, devices, sparse files and paths that leave the archive's own folder are refused.
"""

from __future__ import annotations

import gzip
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from rl_training.runs.names import is_reserved
from rl_training.types import RunError

BLOCK = tarfile.BLOCKSIZE
EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
CHUNK = 2**20
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
"""Names of run directories: neither hidden nor similar to a flag."""


@dataclass(frozen=True)
class Limits:
    """Limits on an archive. A run has a few hundred files, three folders deep."""

    entries: int = 50_000
    depth: int = 12
    """Path components."""
    name: int = 1000
    """Characters of a path."""
    header: int = 2**16
    """Bytes of an extended header."""
    total: int = 2**40
    """Total bytes of all files."""
    ratio: int = 200
    """Compression ratio: bytes of all files for each byte of the archive."""
    small: int = 2**28
    """Total bytes that are allowed whatever the compression ratio."""
    trailing: int = 2**20
    """Bytes after the end-of-archive mark."""

    def allowed(self, packed: int, free: int) -> int:
        """Bytes to which an archive of `packed` bytes may expand with `free` bytes left on the disk."""
        return min(self.total, max(self.small, self.ratio * packed), free)


LIMITS = Limits()


@dataclass(frozen=True)
class Entry:
    """One file or folder of an archive."""

    name: str
    size: int
    is_folder: bool = False


def extract(archive: Path, folder: Path, limits: Limits | None = None) -> str:
    """Extract an archive into `folder`; returns the name of its run. RunError for anything unusual."""
    limits = limits or LIMITS
    top, size = "", 0
    allowed = limits.allowed(archive.stat().st_size, shutil.disk_usage(folder.parent).free)
    try:
        with gzip.open(archive, "rb") as stream:
            for entry in entries(stream, limits):
                size += entry.size
                if size > allowed:
                    raise TooLargeError(f"{size / 1e9:.1f} GB and more, where {allowed / 1e9:.1f} GB are allowed")
                parts = PurePosixPath(entry.name).parts
                if entry.is_folder:
                    continue
                top = top or run_name(parts[0])
                if len(parts) < 2 or parts[0] != top:
                    raise UnusualError(f"it holds {entry.name[:100]!r}")
                path = folder.joinpath(*parts[1:])
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "xb") as target:
                    copy(stream, target, entry.size)
            rest = sum(map(len, chunks(stream, limits.trailing + 1)))  # gzip verifies its checksum at the end
            if rest > limits.trailing:
                raise TooLargeError("something follows its end")
    except UnusualError as error:
        raise RunError(f"'{archive}' is not the archive of a run: {error}; `rl archive RUN` makes one") from None
    except TooLargeError as error:
        raise RunError(f"'{archive}' is too large for the archive of a run: {error}") from None
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError) as error:
        raise RunError(f"'{archive}' is damaged or no archive of a run ({error}); pack it again") from error
    return top


def run_name(name: str) -> str:
    """Check that the archive's own folder has a name that a run may have; returns it."""
    if not NAME.fullmatch(name) or is_reserved(name):
        raise UnusualError(f"{name[:100]!r} cannot be the name of a run")
    return name


class UnusualError(Exception):
    """The archive contains something that `rl archive` never writes."""


class TooLargeError(Exception):
    """The archive exceeds a limit."""


def entries(stream: gzip.GzipFile, limits: Limits) -> Iterator[Entry]:
    """Iterate over files and folders of a tar stream; the caller must read each file before the next entry."""
    files = extras = 0
    records: dict[str, str] = {}
    """Fields of extended headers, which apply to the next file."""
    while (block := exactly(stream, BLOCK)).strip(b"\0"):
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if header.type in EXTENDED:
            extras += 1
            records |= extended(header, stream, limits)
            continue
        files += 1
        if max(files, extras) > limits.entries:
            raise TooLargeError(f"it has more than {limits.entries:,} files")
        name, size = records.get("path", header.name), int(records.get("size", header.size))
        records = {}
        check_name(name, limits)
        is_folder = header.type == tarfile.DIRTYPE
        if size < 0 or (is_folder and size) or header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            raise UnusualError(f"it holds {name[:100]!r}, which is no plain file")
        yield Entry(name, size, is_folder)
        exactly(stream, -size % BLOCK)


def extended(header: tarfile.TarInfo, stream: gzip.GzipFile, limits: Limits) -> dict[str, str]:
    """Name and size of the next file from an extended header; other fields are ignored."""
    if not 0 <= header.size <= limits.header:
        raise TooLargeError(f"it has a header of {header.size:,} bytes")
    data = exactly(stream, header.size)
    exactly(stream, -header.size % BLOCK)
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": data.rstrip(b"\0").decode("utf-8", "surrogateescape")}
    found: dict[str, str] = {}
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not len(length) < int(length) <= len(data):
            raise ValueError("an extended header cannot be read")
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        found[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        data = data[int(length) :]
    if any(key.startswith("GNU.sparse") for key in found):
        raise UnusualError("it holds a sparse file")
    return {key: found[key] for key in ("path", "size") if key in found and header.type == tarfile.XHDTYPE}


def check_name(name: str, limits: Limits) -> None:
    """Raise UnusualError for a path that leaves the folder or that no file of a run can have."""
    parts = PurePosixPath(name).parts
    is_odd = name.startswith("/") or ".." in parts or not name.isprintable() or "\\" in name or ".lock" in parts
    is_long = len(name) > limits.name or len(parts) > limits.depth or any(len(part.encode()) > 255 for part in parts)
    if not parts or is_odd or is_long:
        raise UnusualError(f"it holds {name[:100]!r}")


def exactly(stream: gzip.GzipFile, size: int) -> bytes:
    """The next `size` bytes; EOFError where there are fewer."""
    data = b"".join(chunks(stream, size))
    if len(data) < size:
        raise EOFError("it ends too early")
    return data


def chunks(stream: gzip.GzipFile, size: int) -> Iterator[bytes]:
    """At most `size` bytes, in chunks."""
    while size > 0 and (chunk := stream.read(min(size, CHUNK))):
        yield chunk
        size -= len(chunk)


def copy(stream: gzip.GzipFile, target: IO[bytes], size: int) -> None:
    """Copy the next `size` bytes to another file."""
    for chunk in chunks(stream, size):
        target.write(chunk)
        size -= len(chunk)
    if size:
        raise EOFError("it ends too early")
