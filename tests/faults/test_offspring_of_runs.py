"""Programs, daemons and forked processes of an environment end with the run, however it ends; a bystander does not."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_runs import ROLLOUT, VECTORS, Command, Shell, flags, session_members, wait_until

from rl_training.system.offspring import is_running

FORKER = {"env_id": "fault_envs:Forker", "training.num_eval_episodes": 0}
ENDLESS = {"training.total_timesteps": 10**9}
SHORT = {"training.total_timesteps": 2 * ROLLOUT}
LOUD = {"callbacks": '[{"name": "fault_envs:LoudCallback"}]'}


@pytest.fixture
def bystander() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


def start(shell: Shell, folder: Path, *settings: dict[str, Any], sticky: str = "") -> Command:
    words = flags(FORKER, {"output_dir": folder / "runs"}, *settings)
    variables = {"FORK_FILE": str(folder / "pids"), "STICKY": sticky, "STICKY_FILE": str(folder / "stuck")}
    return shell.start(folder, ["train", *words], variables=variables)


def pids_of(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def check(command: Command, folder: Path, code: int, bystander: int) -> None:
    pids = pids_of(folder)
    assert command.wait() == code, command.err()
    assert len(pids) == len(pids_of(folder)) == 4 * 3
    assert wait_until(lambda: not any(map(is_running, pids)), 5), [pid for pid in pids if is_running(pid)]
    assert is_running(bystander)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("end", ["budget", "error"])
def test_the_run_ends(shell: Shell, folder: Path, bystander: int, vector: str, end: str) -> None:
    command = start(shell, folder, VECTORS[vector], SHORT, LOUD if end == "error" else {})
    assert wait_until(lambda: len(pids_of(folder)) == 12)
    check(command, folder, 1 if end == "error" else 0, bystander)


@pytest.mark.parametrize(
    ("vector", "number"),
    [
        ("sync", signal.SIGTERM),
        ("workers", signal.SIGKILL),
        pytest.param("sync", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("workers", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("workers", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_the_run_is_stopped(shell: Shell, folder: Path, bystander: int, vector: str, number: signal.Signals) -> None:
    command = start(shell, folder, VECTORS[vector], ENDLESS)
    assert wait_until(lambda: len(pids_of(folder)) == 12), command.err()
    assert wait_until(lambda: list(folder.glob("runs/*/checkpoints/latest"))), command.err()
    command.signal(number)
    check(command, folder, 128 + number, bystander)


@pytest.mark.slow
def test_the_run_is_stuck_and_gives_up(shell: Shell, folder: Path, bystander: int) -> None:
    command = start(shell, folder, ENDLESS, sticky="hang")
    assert wait_until((folder / "stuck").exists), command.err()
    command.signal(signal.SIGTERM)
    check(command, folder, 128 + signal.SIGTERM, bystander)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "server"])
def test_a_process_of_the_workers_is_killed(shell: Shell, folder: Path, bystander: int, victim: str) -> None:
    """The run ends with an error; what the environments of the dead had started is gone too."""
    command = start(shell, folder, VECTORS["workers"], ENDLESS)
    assert wait_until(lambda: list(folder.glob("runs/*/checkpoints/latest"))), command.err()
    members = sorted(
        pid for pid, name in session_members(command.pid).items() if "python" in name and pid != command.pid
    )
    members = [pid for pid in members if pid not in pids_of(folder)]
    Command(members[0] if victim == "server" else members[1], folder, lambda seconds: 0).signal(signal.SIGKILL)
    check(command, folder, 1, bystander)
