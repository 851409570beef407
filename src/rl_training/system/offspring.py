"""Ends the child processes of a run with it: programs, forks and daemons started by environments and callbacks.

During a run its process adopts orphaned descendants (Linux: PR_SET_CHILD_SUBREAPER), so that a daemon that left its
parent and its session is still found. When the run ends, for whatever reason, children that did not exist before it
get SIGTERM and then SIGKILL, and so do their descendants. Spared are: children of threads that existed before the run,
other runs of this process, and programs started with OUTLIVES in their environment. Does nothing on other systems.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType

OUTLIVES = "RL_TRAINING_OUTLIVES_RUN"
"""Environment variable that lets a program continue after the run that started it."""
ASK_SECONDS, KILL_SECONDS = 0.2, 0.5
"""Seconds after SIGTERM, and seconds to wait after SIGKILL; both fit into the grace time of a stop signal."""
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_TASKS = Path("/proc/self/task")
_active: list[Offspring] = []
spared: set[int] = set()
"""Processes of this package that end by themselves with this one."""


class Offspring:
    """Context manager around a run; enter it in the thread that runs it."""

    def __init__(self) -> None:
        self._thread = threading.get_native_id()
        self._threads_before: set[int] = set()
        self._before: set[int] = set()
        self._was_adopting = False

    def __enter__(self) -> Offspring:
        self._threads_before = _threads()
        self._before = {pid for thread in self._threads_before for pid in children_of(thread)}
        self._was_adopting = adopt_orphans(True)
        _active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        _active.remove(self)
        if not _active:
            adopt_orphans(self._was_adopting)

    def end(self) -> None:
        """End every process that the run has left. May be called from any thread, and repeatedly."""
        end_all(self._living)

    def _living(self) -> set[int]:
        others = {run._thread for run in _active if run is not self}
        threads = {self._thread, *(_threads() - self._threads_before)} - others
        found = {pid for thread in threads for pid in children_of(thread)} - self._before - spared
        return {pid for pid in found if is_running(pid) and not outlives(pid)}


def end_all(living: Callable[[], Collection[int]]) -> None:
    """Send SIGTERM to the processes that `living` returns, then SIGKILL until it returns none.

    This process adopts the children of a killed one, so the next call of `living` returns them.
    """
    if not (asked := living()):
        return
    _signal(asked, signal.SIGTERM)
    _wait(living, time.monotonic() + ASK_SECONDS)
    deadline = time.monotonic() + KILL_SECONDS
    while (left := living()) and time.monotonic() < deadline:
        _signal(left, signal.SIGKILL)
        time.sleep(0.002)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def children_of(thread: int) -> set[int]:
    """Processes that a thread of this process has started or adopted; empty where the system does not tell."""
    try:
        return {int(pid) for pid in (_TASKS / str(thread) / "children").read_text().split()}
    except (OSError, ValueError):
        return set()


def is_running(pid: int) -> bool:
    """False for a process that has ended, also if it is still a zombie."""
    return process_state(pid) not in ("", "Z", "X")


def process_state(pid: int) -> str:
    """The state letter of /proc/PID/stat (R running, S sleeping, T stopped, Z zombie); "" if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def outlives(pid: int) -> bool:
    """Whether a process is spared: it has OUTLIVES set, or is Python's resource tracker, which ends by itself."""
    with suppress(OSError):
        if any(entry.startswith(f"{OUTLIVES}=".encode()) for entry in _entries(pid, "environ")):
            return True
        return any(b"multiprocessing.resource_tracker" in word for word in _entries(pid, "cmdline"))
    return False


def adopt_orphans(wanted: bool) -> bool:
    """Make this process adopt orphaned descendants, or stop doing so; returns the previous setting."""
    if sys.platform != "linux":
        return False
    before = ctypes.c_int()
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)
    return bool(before.value)


def _threads() -> set[int]:
    try:
        return {int(name) for name in os.listdir(_TASKS)}
    except OSError:
        return set()


def _entries(pid: int, name: str) -> list[bytes]:
    return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _wait(living: Callable[[], Collection[int]], deadline: float) -> None:
    while living() and time.monotonic() < deadline:
        time.sleep(0.005)
