"""Stopping a run from outside: SIGINT, SIGTERM and SIGUSR1 save and exit with a documented code.

| signal | what happens | exit code |
|---|---|---|
| SIGINT (Ctrl-C) | finish the step, save, exit; a second one exits at once | 130 |
| SIGTERM | the same, but never longer than the grace time: then the last checkpoint stands | 143 |
| SIGUSR1 | finish the step, save, ask SLURM to requeue the job if there is one | 75 |
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 75}
GRACE_SECONDS = 5.0


class StopSignals:
    """Context manager that turns signals into a polite request. Does nothing outside the main thread."""

    def __init__(self, request_stop: Callable[[str], None], grace_seconds: float = GRACE_SECONDS) -> None:
        self.request_stop = request_stop
        self.grace_seconds = grace_seconds
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}
        self._timer: threading.Timer | None = None

    @property
    def exit_code(self) -> int | None:
        return None if self.received is None else EXIT_CODES[self.received]

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in EXIT_CODES:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        received = signal.Signals(number)
        if received is signal.SIGINT and self.received is signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is None:
            self.received = received
            self.request_stop(received.name)
        if received is signal.SIGTERM and self._timer is None:
            # a thread, not an alarm: it also fires while the main thread is inside a long C call
            self._timer = threading.Timer(self.grace_seconds * 0.9, self._give_up)
            self._timer.daemon = True
            self._timer.start()

    def _give_up(self) -> None:
        sys.stderr.write("SIGTERM: this step did not end in time and is not saved; the last checkpoint stands\n")
        sys.stderr.flush()
        os._exit(EXIT_CODES[signal.SIGTERM])


def requeue_under_slurm() -> str | None:
    """Ask SLURM to start this job again; what was done, or None where there is no SLURM."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job or shutil.which("scontrol") is None:
        return None
    result = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=30, check=False)
    return f"requeued SLURM job {job}" if result.returncode == 0 else f"could not requeue job {job}: {result.stderr}"
