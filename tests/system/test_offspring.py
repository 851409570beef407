"""Processes started inside a run end with it; earlier ones and those of other threads are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rl_training.system.offspring import OUTLIVES, Offspring, adopt_orphans, is_running

DAEMON = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"


def program(variables: dict[str, str] | None = None) -> int:
    """Not a Popen, which warns if it is not waited for."""
    return os.posix_spawnp("sleep", ["sleep", "1000"], {**os.environ, **(variables or {})})


def daemon() -> int:
    """A process that has left its parent and its session."""
    return int(subprocess.check_output(["sh", "-c", DAEMON]))


def stubborn() -> int:
    """A forked process that ignores SIGTERM, with a child of its own."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(write, f"{program()}".encode())
        time.sleep(1000)
        os._exit(0)
    child_pid = int(os.read(read, 20))
    os.close(read)
    os.close(write)
    started.append(child_pid)
    return pid


started: list[int] = []


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    started.clear()
    yield
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def begin(pid: int) -> int:
    started.append(pid)
    return pid


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 5
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(is_running, pids))


def test_programs_daemons_and_forks_end() -> None:
    before = begin(program())
    with Offspring():
        for pid in (program(), daemon(), stubborn()):
            begin(pid)
        assert all(map(is_running, started))
    assert gone(started[1:])
    assert is_running(before)
    assert adopt_orphans(False) is False, "what it was before"


def test_also_when_an_error_ends_it() -> None:
    def fail() -> None:
        with Offspring():
            begin(daemon())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert gone(started)


def test_a_bystander_survives() -> None:
    """A program that another thread of this process starts during the run."""
    ask, done, leave = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        ask.wait()
        begin(program())
        done.set()
        leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    with Offspring():
        ask.set()
        done.wait()
        own = begin(daemon())
    assert gone([own])
    assert is_running(started[0])
    leave.set()
    thread.join()


def test_a_program_may_say_that_it_goes_on() -> None:
    with Offspring():
        pid = begin(program({OUTLIVES: "1"}))
        other = begin(program())
    assert is_running(pid)
    assert gone([other])


def test_a_thread_of_the_run_counts_too() -> None:
    with Offspring():
        leave = threading.Event()
        thread = threading.Thread(target=lambda: (begin(program()), leave.wait()))
        thread.start()
        while not started:
            time.sleep(0.001)
    assert gone(started)
    leave.set()
    thread.join()
