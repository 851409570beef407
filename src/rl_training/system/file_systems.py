"""What kind of file system a folder is on, and what time it is there: several hosts may share it, each with its clock.

| variable | meaning |
|---|---|
| `RL_TRAINING_NETWORK_FS` | 1 or 0: treat every folder as on a network file system, or none, whatever the system says |
| `RL_TRAINING_FLOCK` | 0: do not rely on `flock`, on a mount where it is not seen by other hosts |
| `RL_TRAINING_HOST` | name of this host in locks and records, where containers share one name |
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from rl_training.types import ConfigError

NETWORK_VARIABLE, FLOCK_VARIABLE, HOST_VARIABLE = "RL_TRAINING_NETWORK_FS", "RL_TRAINING_FLOCK", "RL_TRAINING_HOST"
NETWORK_TYPES = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "9p", "glusterfs", "pvfs2"}
)
"""File systems that several hosts may mount; everything through FUSE counts as one too."""
MOUNTS = Path("/proc/self/mountinfo")
CLOCK_SECONDS = 60.0
"""How long a measured difference between the clocks is used."""


def host_name() -> str:
    """The name of this host, as locks and records have it."""
    return os.environ.get(HOST_VARIABLE) or socket.gethostname()


def flock_is_reliable() -> bool:
    """Whether `flock` may be asked at all; a file system without it says so by itself."""
    return _switch(FLOCK_VARIABLE) is not False


def is_network(folder: Path) -> bool:
    """Whether other hosts may write to a folder at the same time."""
    forced = _switch(NETWORK_VARIABLE)
    return _is_network_type(file_system_type(folder)) if forced is None else forced


def file_system_type(folder: Path) -> str:
    """The type of the mount that a folder is on (`ext4`, `nfs4`, `fuse.sshfs`); empty where the system cannot tell."""
    return _type_at(os.path.realpath(folder), _mounts())


def _is_network_type(name: str) -> bool:
    """>>> _is_network_type("nfs4"), _is_network_type("fuse.sshfs"), _is_network_type("ext4")
    (True, True, False)
    """
    return name in NETWORK_TYPES or name.partition(".")[0] in ("fuse", "fuseblk")


def _type_at(path: str, mounts: tuple[tuple[str, str], ...]) -> str:
    """The type of the longest mount point above a path; of two mounts at one point the later one counts.

    >>> _type_at("/pool/a/runs", (("/", "ext4"), ("/pool", "nfs4"), ("/po", "xfs")))
    'nfs4'
    """
    found, longest = "", -1
    for point, kind in mounts:
        inside = point == "/" or path == point or path.startswith(f"{point}/")
        if inside and len(point) >= longest:
            found, longest = kind, len(point)
    return found


def _mounts() -> tuple[tuple[str, str], ...]:
    """Mount points of this process and their types."""
    found = []
    with suppress(OSError):
        for line in MOUNTS.read_text(errors="surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            point = before.split(" ")[4].encode().decode("unicode_escape", errors="replace")
            found.append((point, after.split(" ")[0]))
    return tuple(found)


def _switch(variable: str) -> bool | None:
    """The value of a variable that is 0 or 1; None where it is not set."""
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise ConfigError(f"{variable}={value!r} must be 0 or 1; or unset it")
    return None if value == "" else value == "1"


# -- the clock of the file server -------------------------------------------------------------------------------------

_differences: dict[int, tuple[float, float]] = {}
"""Device to (monotonic time of the measurement, server's clock minus ours in seconds)."""


def server_time(folder: Path) -> float:
    """The present time by the clock that stamps the files of a folder: that of its file server.

    Measured by touching a file there, at most once a minute for each file system. Where nothing can be written, the
    clock of this host.
    """
    now = time.time()
    try:
        device = os.stat(folder).st_dev
    except OSError:
        return now
    measured, difference = _differences.get(device, (-CLOCK_SECONDS, 0.0))
    if time.monotonic() - measured >= CLOCK_SECONDS:
        difference = _difference(folder)
        _differences[device] = (time.monotonic(), difference)
    return time.time() + difference


def _difference(folder: Path) -> float:
    """The server's clock minus ours, in seconds."""
    probe = folder / f".clock.{host_name()}.{os.getpid()}"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.utime(descriptor)
            return os.fstat(descriptor).st_mtime - time.time()
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError:
        return 0.0
