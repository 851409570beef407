"""Watchdog for environments in this process: names one whose constructor, reset or step hangs, once per call.

A background thread samples the stack of the training thread, and of a thread that steps environments for it, once a
second, at no cost to the loop. It interrupts nothing: signals end a run that hangs (see `system/signals.py`), and
workers have timeouts of their own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType, TracebackType
from typing import Any

from rl_training.envs.episode_log import EpisodeLog
from rl_training.envs.factory import EnvThunk

NOTICE_SECONDS = 10.0
"""Duration after which a call is reported."""
LOOK_SECONDS = 1.0
"""Longest interval between two samples of the stack."""

CALLS: dict[CodeType, str] = {
    EnvThunk.__call__.__code__: "its constructor",
    EpisodeLog.reset.__code__: "reset()",
    EpisodeLog.step.__code__: "step()",
}

_helpers: dict[int, int] = {}
"""Threads that step environments for another one: their identifiers, with that of the other thread."""


@contextmanager
def stepping_for(thread: int) -> Iterator[None]:
    """Inside, this thread steps environments for `thread`, and is watched with it."""
    _helpers[threading.get_ident()] = thread
    try:
        yield
    finally:
        del _helpers[threading.get_ident()]


class EnvWatch:
    """Context manager around code that builds and steps environments in this thread, or in one that helps it."""

    def __init__(self, notice_seconds: float | None = None) -> None:
        self.notice_seconds = NOTICE_SECONDS if notice_seconds is None else notice_seconds
        self._watched = threading.get_ident()
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
        seen: FrameType | None = None
        since, named = 0.0, False
        while not self._stop.wait(min(LOOK_SECONDS, self.notice_seconds / 4)):
            # a call is identified by its frame object: the next call of the same function has another one
            frame = self._env_call()
            now = time.monotonic()
            if frame is not seen:
                seen, since, named = frame, now, False
            elif frame is not None and not named and now - since >= self.notice_seconds:
                named = True
                say_slow(*describe_call(frame), now - since)

    def _env_call(self) -> FrameType | None:
        """The environment call that the watched thread or one of its helpers is in."""
        frames = sys._current_frames()
        helpers = [helper for helper, thread in list(_helpers.items()) if thread == self._watched]
        calls = (env_call(frames.get(thread)) for thread in (self._watched, *helpers))
        return next((call for call in calls if call is not None), None)


def env_call(frame: FrameType | None) -> FrameType | None:
    """The innermost environment call on a stack; None if there is none."""
    while frame is not None and frame.f_code not in CALLS:
        frame = frame.f_back
    return frame


def describe_call(frame: FrameType) -> tuple[str, str]:
    """(environment by index and name, the method it is in)."""
    owner: Any = frame.f_locals["self"]
    name = (
        owner.name if isinstance(owner, EnvThunk) else owner.spec.id if owner.spec else type(owner.unwrapped).__name__
    )
    return f"environment {owner.index} ('{name}')", CALLS[frame.f_code]


def say_slow(environment: str, doing: str, seconds: float) -> None:
    """Written to file descriptor 2: `sys.stderr` is buffered, and the main thread may hold its lock."""
    with suppress(OSError):
        os.write(2, f"{environment} has been in {doing} for {seconds:.0f} s\n".encode(errors="backslashreplace"))
