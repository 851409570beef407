"""Handles in the trainer: of the server process that forks workers, and of each worker.

One server is shared by all vector environments of this process and ends with the last of them.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress

from rl_training.envs.workers.protocol import (
    ANSWER,
    CHUNK,
    EXIT_CODE,
    REQUEST,
    SPAWN,
    STILL_RUNNING,
    TRACE_SIGNAL,
    pack,
    read_message,
)
from rl_training.system.offspring import process_state, spared
from rl_training.system.signals import shielded
from rl_training.types import EnvError

SERVER_TIMEOUT = 60.0
"""Seconds the server may take to start and fork; far more than it needs on a busy machine."""
TRACE_SECONDS = 0.05
"""Time that a hung worker gets to write its traceback."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
"""Numerical libraries use one thread per worker, unless the user's environment variables say otherwise."""

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _socketpair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    _sockets.add(ours)
    return ours, theirs


class WorkerServer:
    """Handle of the process that forks workers and reports their exit codes; it runs `fork_server.serve`."""

    def __init__(self) -> None:
        self.users = 0
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._control, theirs = _socketpair()
        self._control.settimeout(SERVER_TIMEOUT)
        fd = theirs.fileno()
        path = [str(entry) for entry in sys.path]
        code = f"import sys; sys.path[:] = {path}; from rl_training.envs.workers.fork_server import serve; serve({fd})"
        flags = ["-O"] * sys.flags.optimize + [f"-W{option}" for option in sys.warnoptions]
        # a process that forks must not have threads, and the workers fill the cores already
        environ = {**os.environ, **ONE_THREAD}
        with theirs, shielded():  # until it has installed its own handlers
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-c", code], stdin=subprocess.DEVNULL, pass_fds=[fd], env=environ
            )
        spared.add(self._process.pid)  # ends by itself with this process, and ends the workers and their children

    @property
    def alive(self) -> bool:
        return self._control.fileno() >= 0 and self._process.poll() is None

    def spawn(self, fds: Sequence[int]) -> int:
        """Fork a worker that gets copies of these file descriptors; returns its pid."""
        pid = self._ask(SPAWN, 0, fds)
        if pid < 0:
            raise EnvError(f"cannot start an environment worker: {os.strerror(-pid)}; use fewer env.num_workers")
        return pid

    def exit_code(self, pid: int, timeout: float) -> int | None:
        """Exit code of a worker, or minus the signal that killed it; None while it runs or if it cannot be known."""
        deadline = time.monotonic() + timeout
        with suppress(EnvError):
            while (code := self._ask(EXIT_CODE, pid)) == STILL_RUNNING:
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.002)
            return code
        return None

    def _ask(self, kind: bytes, value: int, fds: Sequence[int] = ()) -> int:
        with self._lock:
            try:
                socket.send_fds(self._control, [REQUEST.pack(kind, value)], fds)
                answer = self._control.recv(ANSWER.size)
            except OSError as error:
                self._control.close()  # a late answer would be taken for that of the next request
                raise EnvError(f"the server of the environment workers does not answer ({error})") from error
        if not answer:
            raise EnvError("the server of the environment workers ended unexpectedly; its output says why")
        return int(ANSWER.unpack(answer)[0])

    def close(self) -> None:
        """End the server, and with it any worker that is left."""
        self._control.close()
        if self._owner == os.getpid():
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            spared.discard(self._process.pid)


_shared: WorkerServer | None = None
_shared_lock = threading.Lock()


def acquire_server() -> WorkerServer:
    """The shared server of this process, started if needed; pair each call with `release_server`."""
    global _shared
    with _shared_lock:
        if _shared is None or not _shared.alive:
            _shared = WorkerServer()
        _shared.users += 1
        return _shared


def release_server(server: WorkerServer) -> None:
    """Give a server back; it ends with its last user."""
    global _shared
    with _shared_lock:
        server.users -= 1
        if server.users == 0:
            server.close()
            if _shared is server:
                _shared = None


def _forget_in_forked_child() -> None:
    """A forked copy of this process must not keep servers and workers alive after the original has ended."""
    global _shared, _shared_lock
    _shared, _shared_lock = None, threading.Lock()
    for end in list(_sockets):
        end.close()


os.register_at_fork(after_in_child=_forget_in_forked_child)


class WorkerProcess:
    """Handle of one worker process: messages with timeouts, the cause of its death, and shutdown."""

    def __init__(self, server: WorkerServer, index: int, envs: range, memory_fd: int) -> None:
        self.index = index
        self.envs = envs
        self._server = server
        self._socket, theirs = _socketpair()
        self._trace_fd, trace_write_fd = os.pipe()
        try:
            self.pid = server.spawn([theirs.fileno(), memory_fd, trace_write_fd])
        except BaseException:
            self._socket.close()
            os.close(self._trace_fd)
            raise
        finally:
            theirs.close()
            os.close(trace_write_fd)
        self._socket.setblocking(False)
        os.set_blocking(self._trace_fd, False)
        self.fd = self._socket.fileno()
        self.stuck = False
        self._closed = False
        self._ended: int | None = None

    def send(self, kind: bytes, payload: bytes = b"", *, timeout: float) -> None:
        """Send a command. A worker that does not read it becomes `stuck`; a dead one is noticed by `receive`."""
        if self._closed:
            return
        message = memoryview(pack(kind, payload))
        try:
            while message:
                try:
                    message = message[os.write(self.fd, message) :]
                except BlockingIOError:
                    self._await(select.POLLOUT, timeout)
        except TimeoutError:
            self.stuck = True
        except ConnectionError:
            return

    def receive(self, timeout: float) -> tuple[bytes, bytes]:
        """(kind, payload) of an answer. TimeoutError if the worker stops halfway, ConnectionError if it died."""

        def read() -> bytes:
            while True:
                try:
                    data = os.read(self.fd, CHUNK)
                except BlockingIOError:
                    self._await(select.POLLIN, timeout)
                    continue
                if not data:
                    raise ConnectionResetError
                return data

        return read_message(read)

    def _await(self, event: int, timeout: float) -> None:
        poll = select.poll()
        poll.register(self.fd, event)
        if not poll.poll(None if timeout == float("inf") else timeout * 1000):
            raise TimeoutError

    def how_it_ended(self) -> str:
        """Why the worker process ended, in words."""
        code = self.exit_code(1.0)
        if code is None:
            return "lost its worker process"
        if code >= 0:
            return f"exited with code {code}"
        if code == -signal.SIGKILL:
            return "was killed by SIGKILL (out of memory, or kill -9)"
        names = {int(number): number.name for number in signal.Signals}
        return f"crashed with {names.get(-code, f'signal {-code}')}"

    def how_it_hangs(self) -> tuple[str, str]:
        """(what a worker that does not answer is doing, its Python traceback or "")."""
        if process_state(self.pid) in ("T", "t"):
            return "is stopped (SIGSTOP)", ""
        self.trace()  # discard what an earlier request left
        self.signal(TRACE_SIGNAL)
        time.sleep(TRACE_SECONDS)
        return "hangs", self.trace()

    def trace(self) -> str:
        """The traceback that a crash or TRACE_SIGNAL left in the pipe; "" if there is none."""
        with suppress(BlockingIOError):
            return os.read(self._trace_fd, CHUNK).decode(errors="replace").strip()
        return ""

    def signal(self, number: int) -> None:
        # the pid cannot be reused as long as the server has not been asked for the exit code
        if self._ended is None and self._server.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def exit_code(self, timeout: float) -> int | None:
        if self._ended is None:
            self._ended = self._server.exit_code(self.pid, timeout)
        return self._ended

    def close(self, deadline: float) -> None:
        """Wait until `deadline` (monotonic) for the worker to end after CLOSE, then kill it; idempotent."""
        if self._closed:
            return
        self._closed = True
        with suppress(OSError, TimeoutError):
            while (left := deadline - time.monotonic()) > 0:
                self._await(select.POLLIN, left)
                if not os.read(self.fd, CHUNK):
                    break
        self.signal(signal.SIGKILL)
        self.exit_code(1.0)
        self._socket.close()
        os.close(self._trace_fd)
