"""Watchdog for environments in this process: names one whose constructor, reset or step hangs, once per call.

A background thread asks once a second which calls are under way (`calls.py`). It does not look at the stacks of other
threads: walking the frames of a thread that runs can crash the interpreter (CPython 3.11). It interrupts nothing:
signals end a run that hangs (see `system/signals.py`), and workers have timeouts of their own.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from types import TracebackType

from rl_training.envs.calls import Call, calls_under_way

NOTICE_SECONDS = 10.0
"""Duration after which a call is reported."""
LOOK_SECONDS = 1.0
"""Longest interval between two looks."""

_reported: set[Call] = set()
"""Calls that were reported by any watchdog of this process and are still under way."""


class EnvWatch:
    """Context manager around code that builds and steps environments, in this thread or in others."""

    def __init__(self, notice_seconds: float | None = None) -> None:
        self.notice_seconds = NOTICE_SECONDS if notice_seconds is None else notice_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="env-watch", daemon=True)

    def __enter__(self) -> EnvWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        since: dict[Call, float] = {}
        while not self._stop.wait(min(LOOK_SECONDS, self.notice_seconds / 4)):
            now, calls = time.monotonic(), calls_under_way()
            since = {call: since.get(call, now) for call in calls}
            _reported.intersection_update(calls)
            for call, begun in since.items():
                if now - begun >= self.notice_seconds and call not in _reported:
                    _reported.add(call)
                    say_slow(call, now - begun)


def say_slow(call: Call, seconds: float) -> None:
    """Written to file descriptor 2: `sys.stderr` is buffered, and the main thread may hold its lock."""
    text = f"environment {call.env_index} ('{call.name}') has been in {call.doing} for {seconds:.0f} s\n"
    with suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))
