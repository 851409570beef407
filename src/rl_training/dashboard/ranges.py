"""Files with HTTP ranges, so that a browser can seek in a video. Bytes are read at once: the file may be growing."""

from __future__ import annotations

import os
import re
from pathlib import Path

from starlette.responses import Response

from rl_training.types import RunError

MAX_PIECE = 8 * 2**20
"""Bytes of one answer; a player asks for the rest."""
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def file_answer(path: Path, kind: str, wanted: str | None) -> Response:
    """A file or the part of it that a Range header names; 416 where there is no such part."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise RunError(f"this file cannot be read ({error.strerror})") from None
    with os.fdopen(descriptor, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        part = part_of(wanted, size)
        if part is None:
            return Response(status_code=416, headers={"content-range": f"bytes */{size}"})
        start, stop = part
        file.seek(start)
        data = file.read(stop - start)
    headers = {"accept-ranges": "bytes"}
    is_part = wanted is not None or len(data) < size
    if is_part:
        headers["content-range"] = f"bytes {start}-{start + len(data) - 1}/{size}"
    if kind.startswith("text/"):
        headers["content-disposition"] = "attachment"
    return Response(data, 206 if is_part else 200, headers, kind)


def part_of(wanted: str | None, size: int) -> tuple[int, int] | None:
    """Start and end of the bytes to send; None where a Range header asks for none that exist.

    >>> part_of("bytes=0-1", 10), part_of("bytes=5-", 10), part_of("bytes=-3", 10), part_of("bytes=20-", 10)
    ((0, 2), (5, 10), (7, 10), None)
    """
    if wanted is None:
        return 0, min(size, MAX_PIECE)
    found = RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        start, stop = max(size - int(found[2]), 0), size
    else:
        start, stop = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
    return (start, min(stop, start + MAX_PIECE)) if start < stop else None
