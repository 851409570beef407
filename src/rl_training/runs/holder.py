"""Who holds a run: the process that a lock file names, and whether it is still alive, on this host or another one.

A process of this host is looked up. A process of another host counts as alive while it touches its lock file: see
`heartbeat.py`. It is dead only if the file has not been touched for `LIMIT_SECONDS` by the clock of the file server and
the kernel no longer holds its `flock`; where there is no flock, after `LIMIT_WITHOUT_FLOCK`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rl_training.system.file_systems import flock_is_reliable, host_name, server_time

LIMIT_SECONDS = 120.0
"""Silence of a holder on another host, in seconds, after which its `flock` is asked."""
LIMIT_WITHOUT_FLOCK = 600.0
"""Silence in seconds after which it counts as dead where flock does not work."""
WHERE_VARIABLE = "RL_TRAINING_WHERE"
"""Environment variable of a member: where its executor started it, such as `slurm 4711`."""
LOST_VARIABLE = "RL_TRAINING_LOST_HOLDER"
"""Environment variable of a member that goes on with a run whose node is gone: the token of the holder that its
executor has declared dead."""
UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of a file system that has no flock."""
_START_TOLERANCE = 2.0
"""Seconds by which two readings of a process's start time may differ (they count from a rounded boot time)."""


@dataclass(frozen=True)
class Holder:
    """The process that holds the lock of a run."""

    pid: int
    host: str
    started: float
    """Start time of the process in seconds since 1970, because a pid may be reused by another process."""
    token: str = ""
    """Random text of this one acquisition, by which the holder notices that it was replaced; empty in records of
    versions that did not touch their lock files."""
    where: str = ""
    """Where an executor started the process; empty without one."""

    def is_alive(self) -> bool:
        """False only if the process has certainly ended; one on another host counts as alive."""
        if self.host != host_name():
            return True
        started = process_start(self.pid)
        return started is not None and abs(started - self.started) <= _START_TOLERANCE


Lost = Callable[[Holder], bool | None]
"""What an executor knows about a holder: True if its process is certainly gone; None where it cannot say."""


def read_holder(path: Path) -> Holder | None:
    """The process named in a lock file, alive or not; None if the file is empty, missing or unreadable."""
    try:
        return _holder(path.read_bytes())
    except OSError:
        return None


def _holder(data: bytes) -> Holder | None:
    try:
        record = json.loads(data[:4096])
        return Holder(
            pid=int(record["pid"]),
            host=str(record["host"]),
            started=float(record["started"]),
            token=str(record.get("token", "")),
            where=str(record.get("where", "")),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def living_holder(path: Path, lost: Lost | None = None) -> Holder | None:
    """The holder that a lock file names, if it is alive as far as anybody can tell. A process of this host is looked
    up; about one elsewhere `lost` knows more than its silence says."""
    holder = read_holder(path)
    if holder is None:
        return None
    if holder.host == host_name():
        return holder if holder.is_alive() else None
    is_lost = lost is not None and lost(holder)
    return None if is_lost or is_silent(path, holder) else holder


def is_silent(path: Path, holder: Holder, *, locked_here: bool = False) -> bool:
    """Whether a holder on another host is dead: silent for too long, and its flock is free. `locked_here`: this process
    has just got the flock itself."""
    if not holder.token:  # an older version, which never touches its lock file
        return False
    if holder.token == os.environ.get(LOST_VARIABLE):
        return locked_here or flock_is_free(path) is not False
    try:
        silence = server_time(path.parent) - path.stat().st_mtime
    except OSError:
        return False
    if silence <= LIMIT_SECONDS:
        return False
    is_free = True if locked_here else flock_is_free(path)
    return silence > LIMIT_WITHOUT_FLOCK if is_free is None else is_free


def flock_is_free(path: Path) -> bool | None:
    """Whether no process holds the flock of a file; None where the file system cannot tell.

    The probe is a shared lock held for an instant. Whoever wants the lock meanwhile tries again (`RunLock.acquire`).
    """
    if not flock_is_reliable():
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    finally:
        os.close(descriptor)
    return True


def holder_of(pid: int, token: str = "") -> Holder:
    """A process on this host as a record, from which `is_alive` can later tell whether it is still the same one."""
    return Holder(pid, host_name(), process_start(pid) or 0.0, token, os.environ.get(WHERE_VARIABLE, ""))


def process_start(pid: int) -> float | None:
    """When a process of this host started, in seconds since 1970; None if it has ended."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None
