"""Says which environment is stuck while this process waits for it: one line, once per call.

A thread looks at the stack of the thread that trains, once a second; the loop itself does nothing for it. Nothing is
interrupted here: a signal ends a run that waits (see `signals`), and workers have timeouts of their own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from types import CodeType, FrameType, TracebackType
from typing import Any

from rl_training.envs.episode_log import EpisodeLog
from rl_training.envs.factory import EnvThunk

NOTICE_SECONDS = 10.0
"""How long a call may take before it is named."""
LOOK_SECONDS = 1.0

CALLS: dict[CodeType, str] = {
    EnvThunk.__call__.__code__: "its constructor",
    EpisodeLog.reset.__code__: "reset()",
    EpisodeLog.step.__code__: "step()",
}


class EnvWatch:
    """Context manager around whatever builds and steps environments in this thread."""

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
            # the frame itself is kept: another call, even of the same function, is another frame
            frame = env_call(sys._current_frames().get(self._watched))
            now = time.monotonic()
            if frame is not seen:
                seen, since, named = frame, now, False
            elif frame is not None and not named and now - since >= self.notice_seconds:
                named = True
                say_slow(*whose(frame), now - since)


def env_call(frame: FrameType | None) -> FrameType | None:
    """The innermost call of an environment in a stack."""
    while frame is not None and frame.f_code not in CALLS:
        frame = frame.f_back
    return frame


def whose(frame: FrameType) -> tuple[str, str]:
    """(which environment, what it is doing)."""
    owner: Any = frame.f_locals["self"]
    name = (
        owner.name if isinstance(owner, EnvThunk) else owner.spec.id if owner.spec else type(owner.unwrapped).__name__
    )
    return f"environment {owner.index} ('{name}')", CALLS[frame.f_code]


def say_slow(environment: str, doing: str, seconds: float) -> None:
    """To stderr by its number: a thread must not meet the main one inside a buffered stream."""
    with suppress(OSError):
        os.write(2, f"{environment} has been in {doing} for {seconds:.0f} s\n".encode(errors="backslashreplace"))
