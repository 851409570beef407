"""How much memory this process may still allocate, and which limit decides.

Four limits count, and the tightest decides: the free memory of the machine, the process's control group with all groups
above it (cgroup v1 or v2), and the process's own limits on its address space and its data (`ulimit -v`, `ulimit -d`).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

UNLIMITED = 2**60
"""From here on a limit counts as none: cgroup v1 reports a number near 2**63 for an unlimited group."""


class Room(NamedTuple):
    """Bytes that can still be allocated, and the limit behind that number, in words."""

    bytes: int
    limit: str


class _GroupFiles(NamedTuple):
    """Names of the files in which a cgroup version keeps its numbers."""

    limit: str
    usage: str
    reclaimable: str
    """Key in memory.stat for page cache, which the kernel reclaims before it refuses."""


FILES = {
    "cgroup2": _GroupFiles("memory.max", "memory.current", "inactive_file"),
    "cgroup": _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def room() -> Room:
    """The room under the tightest of all limits."""
    return min([machine_room(), *group_rooms(), *process_rooms()], key=lambda each: each.bytes)


def machine_room() -> Room:
    """Free memory, and page cache that can be freed at once."""
    import psutil

    return Room(int(psutil.virtual_memory().available), "free memory of this machine")


def process_rooms() -> Iterator[Room]:
    """The room under RLIMIT_AS and RLIMIT_DATA, where they are set."""
    limits = (
        (resource.RLIMIT_AS, "VmSize", "address space limit RLIMIT_AS (ulimit -v)"),
        (resource.RLIMIT_DATA, "VmData", "data limit RLIMIT_DATA (ulimit -d)"),
    )
    for number, field, name in limits:
        soft = resource.getrlimit(number)[0]
        if soft != resource.RLIM_INFINITY:
            used = _status_bytes(field)
            yield Room(max(soft - used, 0), f"{name} of {_gigabytes(soft)}, {_gigabytes(used)} of it in use")


def group_rooms(proc: Path = Path("/proc/self")) -> Iterator[Room]:
    """The room in each memory control group of this process, from its own up to the root."""
    for kind, folder, mount in _groups(proc):
        files = FILES[kind]
        while True:
            with suppress(OSError, ValueError):  # no such file in a root group; "max" is no limit
                limit = int((folder / files.limit).read_text())
                used = int((folder / files.usage).read_text())
                cache = _statistics(folder).get(files.reclaimable, 0)
                if limit < UNLIMITED:
                    left = max(limit - used + min(cache, used), 0)
                    yield Room(left, f"control group limit {folder / files.limit} of {_gigabytes(limit)}")
            if folder == mount or mount not in folder.parents:
                break
            folder = folder.parent


def _groups(proc: Path) -> Iterator[tuple[str, Path, Path]]:
    """(version, folder of this process's group, folder of the topmost group that can be seen)."""
    try:
        own = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    for fields in mounts:
        separator = fields.index("-")
        kind, options = fields[separator + 1], fields[separator + 3].split(",")
        if kind not in FILES or (kind == "cgroup" and "memory" not in options):
            continue
        top, mount = PurePosixPath(_unescaped(fields[3])), Path(_unescaped(fields[4]))
        for _, controllers, path in own:
            if (controllers == "") if kind == "cgroup2" else ("memory" in controllers.split(",")):
                yield kind, _folder(mount, top, PurePosixPath(path)), mount


def _folder(mount: Path, top: PurePosixPath, path: PurePosixPath) -> Path:
    """A group's folder below a mount that shows the groups below `top`; the mount itself if the group is not visible
    there, as in a container that sees the host's names."""
    with suppress(ValueError):
        folder = mount / path.relative_to(top)
        if folder.is_dir():
            return folder
    return mount


def _statistics(folder: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        pairs = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return {name: int(value) for name, value in pairs}
    return {}


def _status_bytes(field: str) -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    return 0


def _unescaped(text: str) -> str:
    """Decode a path of mountinfo, where blanks are octal escapes."""
    return os.fsdecode(text.encode(errors="surrogateescape").decode("unicode_escape").encode("latin-1"))


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"
