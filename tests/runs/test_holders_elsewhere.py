"""Runs on other hosts: alive while they touch their lock, replaced when they are silent, and then unable to write."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from group_cases import tiny

import rl_training
from rl_training.runs import heartbeat, holder
from rl_training.runs.directory import RunDir
from rl_training.runs.holder import LIMIT_SECONDS, LIMIT_WITHOUT_FLOCK, LOST_VARIABLE, living_holder, read_holder
from rl_training.runs.lock import RunLock, TakenOverError
from rl_training.runs.row import describe
from rl_training.system.atomic_io import atomic_write
from rl_training.system.json_lines import AppendFile
from rl_training.types import RunError

HOLD = """
import sys, time
from pathlib import Path
from rl_training.runs.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / ".lock"


@pytest.fixture
def elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of the host `far` that holds the lock."""
    path.parent.mkdir()
    env = {**os.environ, "RL_TRAINING_HOST": "far"}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def make_silent(path: Path, seconds: float) -> None:
    """As if the holder had touched its lock for the last time so long ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_holder_elsewhere_is_alive_while_it_touches_its_lock(path: Path, elsewhere: subprocess.Popen[str]) -> None:
    found = living_holder(path)
    assert found is not None
    assert (found.host, found.pid) == ("far", elsewhere.pid)
    with pytest.raises(RunError, match=rf"in use by process {elsewhere.pid} on far"):
        RunLock(path).acquire()


def test_a_silent_one_whose_flock_is_held_is_alive(path: Path, elsewhere: subprocess.Popen[str]) -> None:
    make_silent(path, 10 * LIMIT_WITHOUT_FLOCK)
    assert living_holder(path) is not None


def test_a_dead_one_counts_as_alive_until_it_is_silent_for_long_enough(
    path: Path, elsewhere: subprocess.Popen[str]
) -> None:
    elsewhere.kill()
    elsewhere.wait()
    make_silent(path, LIMIT_SECONDS - 20)
    assert living_holder(path) is not None  # the flock is free, but that may be the file system's fault
    with pytest.raises(RunError, match="on far"):
        RunLock(path).acquire()
    make_silent(path, LIMIT_SECONDS + 1)
    assert living_holder(path) is None
    with RunLock(path):
        assert read_holder(path) == holder.holder_of(os.getpid(), read_holder(path).token)  # type: ignore[union-attr]


def test_without_flock_it_takes_longer(
    path: Path, elsewhere: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RL_TRAINING_FLOCK", "0")
    elsewhere.kill()
    elsewhere.wait()
    make_silent(path, LIMIT_WITHOUT_FLOCK - 20)
    assert living_holder(path) is not None
    make_silent(path, LIMIT_WITHOUT_FLOCK + 1)
    assert living_holder(path) is None


def test_the_executor_knows_sooner(
    path: Path, elsewhere: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its word counts for another host at once; for this one a living process is alive, whatever anybody says."""
    assert living_holder(path, lost=lambda found: found.host == "far") is None
    assert living_holder(path, lost=lambda found: None) is not None
    monkeypatch.setenv("RL_TRAINING_HOST", "far")
    assert living_holder(path, lost=lambda found: True) is not None
    monkeypatch.delenv("RL_TRAINING_HOST")
    elsewhere.kill()
    elsewhere.wait()
    token = read_holder(path)
    assert token is not None
    monkeypatch.setenv(LOST_VARIABLE, token.token)
    with RunLock(path):
        assert read_holder(path) != token


def test_records_of_older_versions_on_other_hosts_stay_alive(path: Path) -> None:
    """They never touch their lock, so silence says nothing."""
    path.parent.mkdir()
    path.write_text(json.dumps({"pid": 5, "host": "far", "started": 1.0}))
    make_silent(path, 10 * LIMIT_WITHOUT_FLOCK)
    assert living_holder(path) is not None


def test_the_lock_is_touched_while_it_is_held(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.05)
    path.parent.mkdir()
    with RunLock(path):
        make_silent(path, 1000.0)
        deadline = time.monotonic() + 20
        while path.stat().st_mtime < time.time() - 500 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert path.stat().st_mtime > time.time() - 500
    assert not heartbeat._locks


def test_one_who_was_replaced_can_write_nothing(path: Path) -> None:
    path.parent.mkdir()
    log = AppendFile(path.parent / "rows.jsonl")
    lock = RunLock(path)
    with lock:
        log.append(b"1\n")
        log.flush()
        path.write_text(json.dumps({"pid": 5, "host": "far", "started": 1.0, "token": "another"}))
        log.append(b"2\n")
        for write in (log.flush, lambda: atomic_write(path.parent / "latest", b"x"), lambda: log.truncate(0)):
            with pytest.raises(TakenOverError, match="taken over by process 5 on far"):
                write()
        before = path.stat().st_mtime_ns
        lock.beat()
        assert path.stat().st_mtime_ns == before
    assert (path.parent / "rows.jsonl").read_bytes() == b"1\n"
    assert sorted(file.name for file in path.parent.iterdir()) == [".lock", "rows.jsonl"]
    assert read_holder(path) is not None  # the release left the lock of the other one alone
    atomic_write(path.parent / "latest", b"x")  # no fence without a lock


def test_the_dead_host_in_a_listing(tmp_path: Path) -> None:
    cfg = rl_training.config.loading.parse_config(tiny(tmp_path))
    run = RunDir.create(cfg)
    record = {"pid": 5, "host": "far", "started": 1.0, "token": "t"}
    (run.path / ".lock").write_text(json.dumps(record))
    assert describe(run.path)["status"] == "running"
    make_silent(run.path / ".lock", LIMIT_SECONDS + 1)
    assert describe(run.path)["status"] == "killed"
    assert run.holder() is None


# -- a whole run, frozen and replaced ---------------------------------------------------------------------------------

FLAGS = ["--total-timesteps=400000", "--env.num-envs=2", "--hparams.num-steps=32", "--training.checkpoint-frequency=64"]


def started(folder: Path, words: list[str], **env: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "RL_TRAINING_FLOCK": "0", **env}
    return subprocess.Popen(
        [sys.executable, "-m", "rl_training", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=variables,
    )


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder with its time and its bytes."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted([folder, *folder.rglob("*")])
    }


def test_a_frozen_run_that_was_taken_over_changes_nothing_when_it_wakes(tmp_path: Path) -> None:
    """Frozen for longer than the limit where flock does not work, gone on with and finished by another host."""
    first = started(tmp_path, ["train", "ppo/cartpole", *FLAGS, "--output-dir=runs"], RL_TRAINING_HOST="far")
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/checkpoints/step_*[1-9]*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    (run,) = tmp_path.glob("runs/ppo*")
    os.kill(first.pid, signal.SIGSTOP)
    try:
        refused = started(tmp_path, ["resume", str(run)])
        out, _ = refused.communicate(timeout=120)
        assert refused.returncode == 1
        assert f"in use by process {first.pid} on far" in out
        make_silent(run / ".lock", LIMIT_WITHOUT_FLOCK + 1)
        steps = max(int(path.name.removeprefix("step_")) for path in run.glob("checkpoints/step_*"))
        second = started(tmp_path, ["resume", str(run), f"--total-timesteps={steps + 128}"])
        out, _ = second.communicate(timeout=200)
        assert second.returncode == 0, out
        assert RunDir(run).info()["status"] == "finished"
        before = contents(run)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "was taken over by" in out
    assert contents(run) == before
    assert socket.gethostname() != "far"
