"""Runs in the server process: forks worker processes on request.

The server is a fresh interpreter that has imported Gymnasium and NumPy and never torch, so forking it is safe and
quick. It does not run the user's `__main__` again: environments defined there arrive pickled by value. When the trainer
ends, however it ends, the server's socket is closed and the server kills every worker.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import signal
import socket
import sys
from contextlib import suppress

from rl_training.envs.workers.process import run_worker
from rl_training.envs.workers.protocol import ANSWER, REQUEST, SPAWN, STILL_RUNNING
from rl_training.system.offspring import adopt_orphans, children_of, end_all, is_running, outlives

PRELOAD = ("rl_training.envs.factory",)
"""Imported once by the server instead of by every worker."""
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Sent to the whole process group by a terminal or a scheduler; only the trainer reacts to them."""


def serve(control_fd: int) -> None:
    """Fork a worker for each request until the trainer has ended; then kill every worker, even a stopped one."""
    control = socket.socket(fileno=control_fd)
    for number in IGNORED_SIGNALS:
        # a handler, not SIG_IGN, which programs started by an environment would inherit
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)  # blocked since before this process started
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what an environment printed is not lost when its worker dies
    for module in PRELOAD:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    adopt_orphans(True)
    with suppress(ConnectionError):
        while _serve_one(control, children):
            continue
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    end_orphans(set())


def end_orphans(workers: set[int]) -> None:
    """End processes that environments of ended workers left behind, which this process has adopted."""

    def living() -> set[int]:
        found = children_of(os.getpid()) - workers
        return {pid for pid in found if is_running(pid) and not outlives(pid)}

    end_all(living)


def _serve_one(control: socket.socket, children: set[int]) -> bool:
    request, fds, _, _ = socket.recv_fds(control, REQUEST.size, 3)
    if not request:
        return False
    kind, pid = REQUEST.unpack(request)
    if kind == SPAWN:
        answer = _fork(control, fds)
        if answer > 0:
            children.add(answer)
        for fd in fds:
            os.close(fd)
    else:
        # reaped only when asked, so that the pid is not reused before the trainer is done with it
        ended, status = os.waitpid(pid, os.WNOHANG)
        answer = os.waitstatus_to_exitcode(status) if ended else STILL_RUNNING
        children.discard(ended)
        if ended:
            end_orphans(children)
    control.sendall(ANSWER.pack(answer))
    return True


def _fork(control: socket.socket, fds: list[int]) -> int:
    """The worker's pid, or minus the errno of a failed fork. Does not return in the worker."""
    server = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        return -(error.errno or 1)
    if pid:
        return pid
    code = 1
    try:
        control.close()
        code = run_worker(server, *fds)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
