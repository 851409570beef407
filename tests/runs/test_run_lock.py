"""One process per run: refused at once, free after any kind of end."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_training.runs.lock import Holder, RunLock, read_holder
from rl_training.types import RunError

HOLD = """
import sys, time
from pathlib import Path
from rl_training.runs.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

FORK = """
import os, sys, time
from pathlib import Path
from rl_training.runs.lock import RunLock
RunLock(Path(sys.argv[1])).acquire()
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def lock_path(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)


def ended_process() -> Holder:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return Holder(process.pid, socket.gethostname(), time.time())


def write_holder(path: Path, holder: Holder) -> None:
    path.write_text(json.dumps({"pid": holder.pid, "host": holder.host, "started": holder.started}))


def test_the_second_one_is_refused_and_told_who_has_it(lock_path: Path) -> None:
    with RunLock(lock_path):
        holder = read_holder(lock_path)
        assert holder is not None
        assert (holder.pid, holder.host) == (os.getpid(), socket.gethostname())
        assert holder.is_alive()
        message = rf"is in use by process {os.getpid()} on {socket.gethostname()}; .*`kill {os.getpid()}`"
        with pytest.raises(RunError, match=message):
            RunLock(lock_path).acquire()
    assert read_holder(lock_path) is None
    with RunLock(lock_path):
        pass


@pytest.mark.wall_clock
def test_another_process_is_refused_until_kill_9(lock_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    start = time.monotonic()
    with pytest.raises(RunError, match=rf"process {process.pid} on "):
        RunLock(lock_path).acquire()
    assert time.monotonic() - start < 1.0
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    stale = read_holder(lock_path)
    assert stale is not None
    assert stale.pid == process.pid
    assert not stale.is_alive()
    with RunLock(lock_path):
        assert read_holder(lock_path) != stale


def test_a_forked_child_that_outlives_its_parent_does_not_keep_the_lock(lock_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", FORK, str(lock_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        with pytest.raises(RunError, match=f"process {parent.pid} "):
            RunLock(lock_path).acquire()
        parent.kill()
        parent.wait()
        with RunLock(lock_path):
            os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


def test_a_pid_that_was_given_away_again_is_not_the_holder() -> None:
    assert not Holder(os.getpid(), socket.gethostname(), started=1.0).is_alive()
    assert Holder(1, "another-host", started=1.0).is_alive()


@pytest.mark.parametrize("content", [b"", b"garbage", b"[]", b'{"pid": "x"}', b"\xff\xfe", b"{" * 100_000])
def test_a_damaged_lock_file_is_free(lock_path: Path, content: bytes) -> None:
    lock_path.write_bytes(content)
    assert read_holder(lock_path) is None
    with RunLock(lock_path):
        assert read_holder(lock_path) is not None


def test_a_directory_that_cannot_be_locked_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot lock the run: .*No such file or directory"):
        RunLock(tmp_path / "missing" / ".lock").acquire()


@pytest.mark.usefixtures("no_flock")
class TestWithoutFlock:
    def test_a_living_holder_refuses(self, lock_path: Path) -> None:
        with RunLock(lock_path):
            with pytest.raises(RunError, match=rf"process {os.getpid()} on "):
                RunLock(lock_path).acquire()
            assert read_holder(lock_path) is not None
        assert not lock_path.exists()

    def test_a_dead_holder_is_replaced(self, lock_path: Path) -> None:
        write_holder(lock_path, ended_process())
        with RunLock(lock_path):
            holder = read_holder(lock_path)
            assert holder is not None
            assert holder.pid == os.getpid()
        assert list(lock_path.parent.iterdir()) == []

    def test_a_holder_elsewhere_refuses_with_the_cure(self, lock_path: Path) -> None:
        write_holder(lock_path, Holder(4, "another-host", 1.0))
        with pytest.raises(RunError, match=r"process 4 on another-host; .*delete .*\.lock"):
            RunLock(lock_path).acquire()

    def test_one_who_was_faster_keeps_it(self, lock_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        winner = Holder(os.getppid(), socket.gethostname(), 2.0)
        write_holder(lock_path, ended_process())
        rename = os.rename

        def overtaken(source: Path, target: Path) -> None:
            write_holder(lock_path, winner)
            rename(source, target)

        monkeypatch.setattr(os, "rename", overtaken)
        with pytest.raises(RunError, match=f"process {winner.pid} on "):
            RunLock(lock_path).acquire()
        assert read_holder(lock_path) == winner
        assert [path.name for path in lock_path.parent.iterdir()] == [".lock"]
