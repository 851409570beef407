"""Heartbeat of the runs that this process holds: a thread touches their lock files, which other hosts look at."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Protocol

BEAT_SECONDS = 20.0
"""Interval of the touches."""


class Beating(Protocol):
    """A lock that is held."""

    def beat(self) -> None:
        """Touch the lock file, unless another process has replaced it."""


_locks: set[Beating] = set()
_guard = threading.Lock()
_thread: BeatThread | None = None


class BeatThread(threading.Thread):
    """Touches every held lock until it is told to end."""

    def __init__(self) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(BEAT_SECONDS):
            with _guard:
                held = list(_locks)
            for lock in held:
                with suppress(OSError):  # a stalled file server: the next beat tries again
                    lock.beat()


def add(lock: Beating) -> None:
    """Touch this lock from now on."""
    global _thread
    with _guard:
        _locks.add(lock)
        if _thread is None:
            _thread = BeatThread()
            _thread.start()


def remove(lock: Beating) -> None:
    """Leave this lock alone from now on; the thread ends with the last one."""
    global _thread
    ending = None
    with _guard:
        _locks.discard(lock)
        if not _locks:
            ending, _thread = _thread, None
    if ending is not None:
        ending.over.set()
        ending.join()


def _forget_in_child() -> None:
    # threads do not survive a fork, and the child holds no lock
    global _thread, _guard
    _thread, _guard = None, threading.Lock()
    _locks.clear()


os.register_at_fork(after_in_child=_forget_in_child)
