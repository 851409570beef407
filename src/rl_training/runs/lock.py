"""One process per run directory: `flock` on the file `.lock`, which also names the holder.

The kernel releases the lock when its process ends, however it ends, so a killed run can be resumed at once. Where the
file system has no flock, the existence of the file is the lock, and a holder that is no longer alive is replaced.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from rl_training.types import RunError

_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_START_TOLERANCE = 2.0
"""Seconds by which two readings of a process's start time may differ (they count from a rounded boot time)."""
_held: set[int] = set()
"""File descriptors of the locks that this process holds."""


def _close_in_child() -> None:
    # A forked child inherits the open file and would keep the lock after its parent was killed.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


@dataclass(frozen=True)
class Holder:
    """The process that holds the lock of a run."""

    pid: int
    host: str
    started: float
    """Start time of the process in seconds since 1970, because a pid may be reused by another process."""

    def is_alive(self) -> bool:
        """False only if the process has certainly ended; one on another host counts as alive."""
        if self.host != socket.gethostname():
            return True
        started = _process_start(self.pid)
        return started is not None and abs(started - self.started) <= _START_TOLERANCE


class RunLock:
    """Context manager for the `.lock` of a run directory; entering raises RunError if another process holds it."""

    def __init__(self, path: Path, kind: str = "run", *, anonymous: bool = False) -> None:
        """`anonymous` also locks where nothing can be written, on a full or read-only disk; the holder is then not
        recorded. For commands that only read the folder, or that free space in it."""
        self.path = path
        self.kind = kind
        """What messages call the folder."""
        self.anonymous = anonymous
        self._descriptor: int | None = None
        self._owns_file = False

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock now or raise RunError; never waits."""
        descriptor = self._open()
        if descriptor is None:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                holder = read_holder(self.path)
                # under an anonymous lock the file may still name a process that was killed
                raise self._refusal(holder if holder and holder.is_alive() else None) from None
            if error.errno not in _UNSUPPORTED:
                raise RunError(f"cannot lock the {self.kind}: {self.path}: {error.strerror}") from error
            self._acquire_by_file()
            return
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _this_process(), 0)
        except OSError as error:  # a full disk: the lock works, but its holder cannot be recorded
            if not self.anonymous:
                os.close(descriptor)
                raise RunError(
                    f"cannot lock the {self.kind}: {self.path}: {error.strerror}; free some space"
                ) from error
        self._descriptor = descriptor
        _held.add(descriptor)

    def _open(self) -> int | None:
        """The opened lock file; None if it does not exist and cannot be created, so that no process can hold it."""
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if self.anonymous:
                with suppress(FileNotFoundError, PermissionError):
                    return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                if self.path.parent.is_dir() and not self.path.exists():
                    return None
            raise RunError(
                f"cannot lock the {self.kind}: {self.path}: {error.strerror}; check its permissions"
            ) from error

    def release(self) -> None:
        """Release the lock. The empty file stays: if it were removed, two processes could lock different files."""
        if self._descriptor is not None:
            with suppress(OSError):  # an anonymous lock may lack the permission to write
                os.ftruncate(self._descriptor, 0)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # explicitly, in case a child was forked just now
            _held.discard(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        if self._owns_file:
            self.path.unlink(missing_ok=True)
            self._owns_file = False

    def _acquire_by_file(self) -> None:
        holder = read_holder(self.path)
        if holder is not None and holder.is_alive():
            raise self._refusal(holder)
        if self.anonymous:
            return
        # os.link fails if the name exists, so only one of several processes that replace a stale holder succeeds.
        here = f"{self.path.name}.{socket.gethostname()}.{os.getpid()}"
        candidate, stale = self.path.with_name(here), self.path.with_name(f"{here}.stale")
        candidate.write_bytes(_this_process())
        try:
            with suppress(FileNotFoundError):
                os.rename(self.path, stale)
            newer = read_holder(stale)
            if newer is not None and newer != holder:  # another process has locked it meanwhile: restore its file
                os.link(stale, self.path)
                raise self._refusal(newer)
            os.link(candidate, self.path)
        except FileExistsError:
            raise self._refusal(read_holder(self.path)) from None
        except OSError as error:
            raise RunError(f"cannot lock the {self.kind}: {self.path}: {error.strerror}") from error
        finally:
            candidate.unlink(missing_ok=True)
            stale.unlink(missing_ok=True)
        self._owns_file = True

    def _refusal(self, holder: Holder | None) -> RunError:
        if holder is None:
            return RunError(f"{self.kind} '{self.path.parent}' is in use by another process; wait until it ends")
        cure = f"wait until it ends, or stop it with `kill {holder.pid}`"
        if holder.host != socket.gethostname():
            cure = f"wait until it ends; if that host is gone for good, delete {self.path}"
        return RunError(f"{self.kind} '{self.path.parent}' is in use by process {holder.pid} on {holder.host}; {cure}")


def read_holder(path: Path) -> Holder | None:
    """The process named in a lock file, alive or not; None if the file is empty, missing or unreadable."""
    try:
        record = json.loads(path.read_bytes()[:4096])
        return Holder(pid=int(record["pid"]), host=str(record["host"]), started=float(record["started"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def holder_of(pid: int) -> Holder:
    """A process on this host as a record, from which `is_alive` can later tell whether it is still the same one."""
    return Holder(pid=pid, host=socket.gethostname(), started=_process_start(pid) or 0.0)


def _this_process() -> bytes:
    return json.dumps(asdict(holder_of(os.getpid()))).encode() + b"\n"


def _process_start(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None
