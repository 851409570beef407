"""One process per run directory: `flock` on the file `.lock`, which also names the holder.

The kernel releases the lock when its process ends, however it ends, so a killed run can be resumed at once. Where the
file system has no flock, the existence of the file is the lock, and a holder that is no longer alive is replaced.

A holder on another host that stays silent for too long is replaced too (`holder.py`). It may only have been frozen, and
wake up: hence the token in the file. The holder compares it before every change of the run directory, and stops without
writing once it finds another one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from rl_training.runs import heartbeat
from rl_training.runs.holder import (
    UNSUPPORTED,
    Holder,
    Lost,
    holder_of,
    is_silent,
    living_holder,
    read_holder,
)
from rl_training.system.atomic_io import put_up_fence, take_down_fence
from rl_training.system.file_systems import flock_is_reliable, host_name
from rl_training.system.place import Place
from rl_training.types import RunError

__all__ = ["Holder", "Lost", "RunLock", "TakenOverError", "holder_of", "living_holder", "read_holder"]

PROBE_SECONDS = 0.2
"""How long to try again where the lock seems taken by a process that is gone: somebody may be probing it."""
_held: set[int] = set()
"""File descriptors of the locks that this process holds."""


class TakenOverError(RunError):
    """Another process has taken this run over, so this one must not write to it any more."""


def _close_in_child() -> None:
    # A forked child inherits the open file and would keep the lock after its parent was killed.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


class RunLock:
    """Context manager for the `.lock` of a run directory; entering raises RunError if another process holds it."""

    def __init__(self, path: Path, kind: str = "run", *, anonymous: bool = False) -> None:
        """`anonymous` also locks where nothing can be written, on a full or read-only disk; the holder is then not
        recorded. For commands that only read the folder, or that free space in it."""
        self.path = path
        self.kind = kind
        """What messages call the folder."""
        self.anonymous = anonymous
        self.token = secrets.token_hex(8)
        """What the lock file says while this object holds it."""
        self._descriptor: int | None = None
        self._owns_file = False
        self._place: Place | None = None
        self._is_recorded = False
        """Whether the file names this process, so that it can be touched and compared."""

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
            self._flock(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                holder = read_holder(self.path)
                # under an anonymous lock the file may still name a process that was killed
                raise self._refusal(holder if holder and holder.is_alive() else None) from None
            if error.errno not in UNSUPPORTED:
                raise RunError(f"cannot lock the {self.kind}: {self.path}: {error.strerror}") from error
            self._acquire_by_file()
            self._protect()
            return
        holder = read_holder(self.path)
        if holder is not None and self._is_held_elsewhere(holder):
            # its flock is not seen here: a mount without locks between hosts, or one whose lease has just ended
            os.close(descriptor)
            raise self._refusal(holder)
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._record(), 0)
            self._is_recorded = True
        except OSError as error:  # a full disk: the lock works, but its holder cannot be recorded
            if not self.anonymous:
                os.close(descriptor)
                raise RunError(
                    f"cannot lock the {self.kind}: {self.path}: {error.strerror}; free some space"
                ) from error
        self._descriptor = descriptor
        _held.add(descriptor)
        self._protect()

    def _flock(self, descriptor: int) -> None:
        """Take the flock; OSError if another process has it, or the file system has none. A process that only probes
        it has it for an instant, so a lock whose recorded holder is gone is tried again."""
        if not flock_is_reliable():
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        deadline = time.monotonic() + PROBE_SECONDS
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = read_holder(self.path)
                is_taken = error.errno in (errno.EWOULDBLOCK, errno.EACCES)
                is_here = holder is not None and holder.host == host_name() and holder.is_alive()
                if not is_taken or holder is None or is_here or time.monotonic() >= deadline:
                    raise
            time.sleep(PROBE_SECONDS / 10)

    def _is_held_elsewhere(self, holder: Holder) -> bool:
        """Whether the lock file names a process of another host that still touches it."""
        if holder.host == host_name() or not holder.token:
            return False
        return not is_silent(self.path, holder, locked_here=True)

    def _protect(self) -> None:
        """Keep the lock file fresh, and ask it before each change of the folder."""
        if self._is_recorded or self._owns_file:
            with suppress(OSError):
                self._place = Place(self.path.parent)
            heartbeat.add(self)
            put_up_fence(self.path.parent.absolute(), self.check)

    def is_ours(self) -> bool:
        """Whether the lock file still names this acquisition. True where it cannot be read just now, and where the
        whole folder is gone or was replaced: that is `Place`'s to report."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return not self._in_place()
        except OSError:
            return True
        return self.token.encode() in data or not self._in_place()

    def _in_place(self) -> bool:
        """Whether the folder is the one that was locked."""
        return self._place is not None and self._place.is_there()

    def check(self) -> None:
        """TakenOverError if another process has the run now."""
        if self.is_ours():
            return
        holder = read_holder(self.path)
        by = "another process" if holder is None else f"process {holder.pid} on {holder.host}"
        raise TakenOverError(
            f"{self.kind} '{self.path.parent}' was taken over by {by} while this process was silent; nothing more is "
            "written here"
        )

    def beat(self) -> None:
        """Touch the lock file, with the time of the file server, if it is still ours."""
        if self.is_ours():
            os.utime(self.path)

    def _record(self) -> bytes:
        return json.dumps(asdict(holder_of(os.getpid(), self.token))).encode() + b"\n"

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
        if self._is_recorded or self._owns_file:
            heartbeat.remove(self)
            take_down_fence(self.path.parent.absolute())
        is_ours = not (self._is_recorded or self._owns_file) or self.is_ours()
        if self._descriptor is not None:
            with suppress(OSError):  # an anonymous lock may lack the permission to write
                if is_ours:
                    os.ftruncate(self._descriptor, 0)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # explicitly, in case a child was forked just now
            _held.discard(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            self._is_recorded = False
        if self._owns_file:
            if is_ours:
                self.path.unlink(missing_ok=True)
            self._owns_file = False

    def _acquire_by_file(self) -> None:
        holder = read_holder(self.path)
        if holder is not None and (living := living_holder(self.path)) is not None:
            raise self._refusal(living)
        if self.anonymous:
            return
        # os.link fails if the name exists, so only one of several processes that replace a stale holder succeeds.
        here = f"{self.path.name}.{host_name()}.{os.getpid()}"
        candidate, stale = self.path.with_name(here), self.path.with_name(f"{here}.stale")
        candidate.write_bytes(self._record())
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
        if holder.host != host_name():
            cure = f"wait until it ends; if that host is gone for good, delete {self.path}"
        return RunError(f"{self.kind} '{self.path.parent}' is in use by process {holder.pid} on {holder.host}; {cure}")
