"""Stopping a run from outside: SIGINT, SIGTERM and SIGUSR1 save and exit with a documented code.

| signal | what happens | exit code |
|---|---|---|
| SIGINT (Ctrl-C) | finish the step, save, exit; a second one exits at once | 130 |
| SIGTERM | the same, but never longer than the grace time: then the last checkpoint is what remains | 143 |
| SIGUSR1 | finish the step, save, ask SLURM to requeue the job if there is one | 75 |
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 75}
GRACE_SECONDS = 5.0
CLEANUP_SECONDS = 1.0
"""Time after a second SIGINT for closing files and environments."""
REQUEUE_VARIABLE = "RL_TRAINING_REQUEUE"
"""Environment variable: 0 in the members of a group, whose parent asks SLURM once, after the last of them has saved."""
_active: list[StopSignals] = []
_forking = threading.local()


def _before_fork() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES if _active else ())


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_fork_in_child() -> None:
    # a process forked by an environment has the previous handlers and does not pass its signals on to this run
    for signals in _active:
        signals.restore()
    _active.clear()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


class StopSignals:
    """Context manager around a whole run, its construction included, that turns signals into a request to stop.

    Python runs a signal handler only when the main thread returns from C code, so a background thread receives the
    signals too and enforces the deadlines. Does nothing outside the main thread.
    """

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.grace_seconds = grace_seconds
        self.received: signal.Signals | None = None
        self.saved = False
        """Set once the last step is saved, for the final message if the time runs out after that."""
        self.before_exit: Callable[[], None] | None = None
        """Called before a forced exit, to clean up what must not be left behind."""
        self._request_stop: Callable[[str], None] | None = None
        self._interrupts = 0
        self._previous: dict[signal.Signals, Any] = {}
        self._previous_fd = -1
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None

    @property
    def exit_code(self) -> int | None:
        return None if self.received is None else EXIT_CODES[self.received]

    def bind(self, request_stop: Callable[[str], None]) -> None:
        """Set the function that requests a stop; it is called at once if a signal has already come."""
        self._request_stop = request_stop
        if self.received is not None:
            request_stop(self.received.name)

    def clean_up_with(self, function: Callable[[], None]) -> None:
        """What to call before the process is ended at once."""
        self.before_exit = function

    def mark_saved(self) -> None:
        """The last step is saved: nothing is lost if the time runs out now."""
        self.saved = True

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._sockets = ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            self._previous_fd = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._watch, args=(ours,), name="stop-signals", daemon=True)
            self._thread.start()
            for number in EXIT_CODES:
                self._previous[number] = signal.signal(number, self._handle)
            _active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sockets is not None:
            self.restore()
            _active.remove(self)
            self._sockets[1].close()  # the thread reads end-of-file and returns
            if self._thread is not None:
                self._thread.join()
        # a thread that outlived this would free the trainer's tensors while the interpreter shuts down
        self._request_stop = None
        self.before_exit = None

    def restore(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        received = signal.Signals(number)
        if received is signal.SIGINT:
            self._interrupts += 1
            if self._interrupts == 2:
                raise KeyboardInterrupt
        self.receive(received)

    def receive(self, received: signal.Signals) -> None:
        """Request a stop, as a signal does; for runs in threads, which get no signals themselves."""
        if self.received is None:
            self.received = received
            if self._request_stop is not None:
                self._request_stop(received.name)

    def _watch(self, numbers: socket.socket) -> None:
        """Thread: announce the first signal and end the process when a deadline passes, until the socket is closed."""
        deadlines: dict[signal.Signals, float] = {}
        interrupts = 0
        announced = False
        with numbers:
            while True:
                left = min(deadlines.values()) - time.monotonic() if deadlines else None
                numbers.settimeout(None if left is None else max(left, 1e-3))
                try:
                    data = numbers.recv(64)
                except TimeoutError:
                    self._give_up(min(deadlines, key=deadlines.__getitem__))
                if not data:
                    return
                for number in (signal.Signals(byte) for byte in data if byte in EXIT_CODES):
                    if not announced:
                        again = "; once more stops at once" if number is signal.SIGINT else ""
                        _say(f"{number.name}: stopping after this step{again}")
                    announced = True
                    interrupts += number is signal.SIGINT
                    if number is signal.SIGTERM:
                        deadlines.setdefault(number, time.monotonic() + 0.9 * self.grace_seconds)
                    elif number is signal.SIGINT and interrupts == 2:
                        deadlines.setdefault(number, time.monotonic() + CLEANUP_SECONDS)

    def _give_up(self, number: signal.Signals) -> NoReturn:
        state = "the last step is saved" if self.saved else "this step is not saved; the last checkpoint stands"
        _say(f"{number.name}: the time to stop is over: {state}")
        if self.before_exit is not None:
            with suppress(Exception):
                self.before_exit()
        os._exit(EXIT_CODES[number])


@contextmanager
def shielded() -> Iterator[None]:
    """Block the stop signals, so that programs started inside inherit the mask: schedulers signal every process of a
    job, and only the run should react. A signal that arrives meanwhile is handled at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _say(text: str) -> None:
    """Written to file descriptor 2: `sys.stderr` is buffered, and the main thread may hold its lock."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode())


def requeue_under_slurm() -> str | None:
    """Ask SLURM to requeue this job; returns what was done, or None without SLURM or if a parent process asks."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job or os.environ.get(REQUEUE_VARIABLE) == "0" or shutil.which("scontrol") is None:
        return None
    try:
        subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", None) or error
        return f"could not requeue SLURM job {job}: {words}"
    return f"requeued SLURM job {job}"
