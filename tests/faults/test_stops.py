"""SIGTERM, SIGINT and SIGUSR1 at any moment: the documented exit code in time, words that are true, exact resume."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT, SIGTERM, SIGUSR1, Signals

import numpy as np
import pytest
from fault_runs import (
    CASES,
    ENVIRONMENTS,
    NEAR_THE_END,
    ROLLOUT,
    TOTAL,
    Command,
    Reference,
    Shell,
    flags,
    info,
    latest_step,
    run_directories,
    session_members,
    the_run,
    wait_until,
)

from rl_training.system.signals import GRACE_SECONDS

pytestmark = pytest.mark.wall_clock

FindReference = Callable[..., Reference]
CODES = {SIGINT: 130, SIGTERM: 143, SIGUSR1: 75}


def stopped_after(shell: Shell, folder: Path, words: list[str], target: int, *, to_all: bool = False) -> Command:
    """SIGTERM some time after `target` env steps are saved; the command has ended as it should."""
    command = shell.start(folder, words, fault=NEAR_THE_END)
    assert wait_until(lambda: run_directories(folder / "runs")), command.err()
    run = the_run(folder / "runs")
    assert wait_until(lambda: latest_step(run) >= target), command.err()
    end(command, SIGTERM, run, to_all=to_all)
    return command


def end(command: Command, number: Signals, run: Path, *, to_all: bool = False) -> None:
    """Send the signal; it must end in time with its code, have saved the step, and say so."""
    sent = time.monotonic()
    command.signal(number, to_all=to_all)
    assert command.wait() == CODES[number], command.err()
    assert time.monotonic() - sent < GRACE_SECONDS
    step = latest_step(run)
    assert f"stopped: {number.name}" in command.out()
    assert f"this step is saved ({step:,} env steps)" in command.out()
    assert f"rl resume {run}" in command.out()
    recorded = info(run)
    assert (recorded["status"], recorded["exit_code"]) == ("stopped", CODES[number])


@pytest.mark.parametrize("case", ["cartpole-sync", "lander-workers"])
def test_sigterm_at_random_moments(shell: Shell, folder: Path, reference: FindReference, case: str) -> None:
    """Twice in one life; with workers to all of its processes, as a scheduler does."""
    expected = reference(case.split("-")[0])
    rng = np.random.default_rng(7)
    words = ["train", *flags(CASES[case], {"output_dir": folder / "runs"})]
    for low in (0, TOTAL // 2):
        target = low + int(rng.integers(TOTAL // 3))
        stopped_after(shell, folder, words, target, to_all=case.endswith("workers"))
        run = the_run(folder / "runs")
        assert expected.assert_on_the_way(run) >= target
        words = ["resume", str(run)]
    expected.assert_finishes(shell, folder, run)


def test_sigterm_before_the_first_step_and_inside_a_save(shell: Shell, folder: Path, reference: FindReference) -> None:
    """Of a new run and of resumed ones: whatever is saved then is what was there, also environments not yet reset."""
    expected = reference("cartpole")
    words = ["train", *flags(CASES["cartpole-sync"], {"output_dir": folder / "runs"})]
    for point, step in (
        ("create checkpoints/* 1", 0),
        ("write logs/metrics.jsonl 1", 0),  # the logs are cut back to the checkpoint
        ("rename checkpoints/step_000000000256 1", 4 * ROLLOUT),
        ("write logs/metrics.jsonl 1", 4 * ROLLOUT),
    ):
        command = shell.start(folder, words, fault=("stop", point))
        assert command.wait() == 143, command.err()
        run = the_run(folder / "runs")
        assert expected.assert_on_the_way(run) == step
        assert f"this step is saved ({step:,} env steps)" in command.out()
        words = ["resume", str(run)]
    expected.assert_finishes(shell, folder, run)


def test_a_new_python_stopped_by_ctrl_c(shell: Shell, folder: Path, reference: FindReference) -> None:
    expected = reference("sticky")
    words = flags(ENVIRONMENTS["sticky"], {"output_dir": folder / "runs"})
    command = shell.start_fresh(folder, ["train", *words], {"STICKY": "slow"})
    assert wait_until(lambda: run_directories(folder / "runs") and latest_step(the_run(folder / "runs")) >= ROLLOUT)
    run = the_run(folder / "runs")
    end(command, SIGINT, run)
    assert "SIGINT: stopping after this step; once more stops at once" in command.err()
    expected.assert_on_the_way(run)
    expected.assert_finishes(shell, folder, run)


def test_sigterm_to_all_processes_of_a_run_that_is_being_built(
    shell: Shell, folder: Path, reference: FindReference
) -> None:
    """The server of the workers has only just been started, and has no handlers yet."""
    words = flags(CASES["cartpole-workers"], {"output_dir": folder / "runs"})
    command = shell.start(folder, ["train", *words])
    assert wait_until(lambda: len(session_members(command.pid)) == 2), command.err()
    command.signal(SIGTERM, to_all=True)
    assert command.wait() == 143, command.err()
    run = the_run(folder / "runs")
    assert reference("cartpole").assert_on_the_way(run) == 0
    reference("cartpole").assert_finishes(shell, folder, run)


FORKING = """
import os, signal, time
from rl_training.system.signals import StopSignals
with StopSignals(grace_seconds=0.3) as signals:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    status = os.waitpid(child, 0)[1]
    time.sleep(0.6)
    print(os.waitstatus_to_exitcode(status), signals.received)
"""


def test_a_forked_child_keeps_its_signals_to_itself() -> None:
    """An environment may fork and end processes of its own."""
    command = [sys.executable, "-c", FORKING]
    result = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True)
    assert (result.stdout, result.stderr) == ("-15 None\n", "")


# -- SLURM ------------------------------------------------------------------------------------------------------------

SCONTROL = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
{end}
"""


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("exit 0", "requeued SLURM job 4711"),
        ("echo 'slurm_requeue error: Requested operation is presently disabled' >&2; exit 1", "could not requeue"),
    ],
    ids=["accepts", "refuses"],
)
def test_sigusr1_saves_and_requeues(
    shell: Shell, folder: Path, reference: FindReference, ending: str, words: str
) -> None:
    """SLURM's interface is the program `scontrol`; this one writes down what it was asked."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text(SCONTROL.format(end=ending))
    (tools / "scontrol").chmod(0o755)
    slurm = {"SLURM_JOB_ID": "4711", "PATH": f"{tools}:/usr/bin:/bin"}
    settings = flags(CASES["cartpole-sync"], {"output_dir": folder / "runs"})
    command = shell.start(folder, ["train", *settings], fault=NEAR_THE_END, variables=slurm)
    assert wait_until(lambda: run_directories(folder / "runs") and latest_step(the_run(folder / "runs")) >= ROLLOUT)
    run = the_run(folder / "runs")
    end(command, SIGUSR1, run)
    assert (tools / "calls").read_text() == "requeue 4711\n"
    assert words in command.out()
    assert words in (run / "logs" / "train.log").read_text()
    reference("cartpole").assert_finishes(shell, folder, run)


# -- a step that does not end -----------------------------------------------------------------------------------------


def stuck_run(shell: Shell, folder: Path, how: str) -> tuple[Command, Path]:
    """CartPole, stuck in its seventh rollout, with checkpoints up to the sixth."""
    sticky = {"STICKY": how, "STICKY_FILE": str(folder / "stuck")}
    words = flags(ENVIRONMENTS["sticky"], {"output_dir": folder / "runs"})
    command = shell.start(folder, ["train", *words], variables=sticky)
    assert wait_until((folder / "stuck").exists), command.err()
    return command, the_run(folder / "runs")


def check_left_behind(shell: Shell, folder: Path, expected: Reference, command: Command, run: Path) -> None:
    """The unfinished step is not saved, which is said; what was saved before it stands, and the run can go on."""
    assert "this step is not saved; the last checkpoint stands" in command.err()
    assert expected.assert_on_the_way(run) == 6 * ROLLOUT
    expected.assert_finishes(shell, folder, run)


def test_sigterm_in_a_step_that_does_not_end(shell: Shell, folder: Path, reference: FindReference) -> None:
    """Hung inside C, where no Python handler runs."""
    command, run = stuck_run(shell, folder, "hang")
    sent = time.monotonic()
    command.signal(SIGTERM)
    assert command.wait() == 143
    assert 0.8 * GRACE_SECONDS < time.monotonic() - sent < GRACE_SECONDS
    check_left_behind(shell, folder, reference("sticky"), command, run)


def test_sigterm_in_a_constructor_that_does_not_end(shell: Shell, folder: Path) -> None:
    """Before there is anything to save."""
    sticky = {"STICKY": "built", "STICKY_FILE": str(folder / "stuck")}
    words = flags(ENVIRONMENTS["sticky"], {"output_dir": folder / "runs"})
    command = shell.start(folder, ["train", *words], variables=sticky)
    assert wait_until((folder / "stuck").exists), command.err()
    sent = time.monotonic()
    command.signal(SIGTERM)
    assert command.wait() == 143
    assert time.monotonic() - sent < GRACE_SECONDS
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("how", ["sleep", "hang"])
def test_a_second_ctrl_c_ends_at_once(shell: Shell, folder: Path, reference: FindReference, how: str) -> None:
    command, run = stuck_run(shell, folder, how)
    command.signal(SIGINT)
    assert wait_until(lambda: "stopping after this step" in command.err())
    sent = time.monotonic()
    command.signal(SIGINT)
    assert command.wait() == 130
    assert time.monotonic() - sent < 2.0
    if how == "sleep":  # Python was there to clean up
        assert (info(run)["status"], info(run)["exit_code"]) == ("stopped", 130)
        assert f"rl resume {run}" in command.err()
    check_left_behind(shell, folder, reference("sticky"), command, run)


# -- all of it --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", range(30))
def test_sigterm_at_30_random_moments(shell: Shell, folder: Path, reference: FindReference, number: int) -> None:
    """Once each, by turns in the four cases, to one process or to all; then resumed to the end."""
    case = list(CASES)[number % len(CASES)]
    expected = reference(case.split("-")[0])
    rng = np.random.default_rng(number)
    words = ["train", *flags(CASES[case], {"output_dir": folder / "runs"})]
    stopped_after(shell, folder, words, int(rng.integers(TOTAL - 2 * ROLLOUT)), to_all=bool(rng.integers(2)))
    run = the_run(folder / "runs")
    expected.assert_on_the_way(run)
    expected.assert_finishes(shell, folder, run)


@pytest.mark.slow
def test_sigterm_at_any_time_from_the_start(shell: Shell, folder: Path, reference: FindReference) -> None:
    """While Python starts, while things are built, while it trains, while it ends: the code, and never a broken run."""
    expected = reference("cartpole")
    codes = []
    for moment in range(24):
        runs = folder / f"runs-{moment}"
        command = shell.start_fresh(folder, ["train", *flags(CASES["cartpole-sync"], {"output_dir": runs})])
        time.sleep(0.15 * moment)
        sent = time.monotonic()
        command.signal(SIGTERM)
        codes.append(command.wait())
        assert time.monotonic() - sent < GRACE_SECONDS, (codes, command.err())
        for run in run_directories(runs):
            if latest_step(run) >= 0:
                expected.assert_on_the_way(run)
            expected.assert_finishes(shell, folder, run)
    print(codes)
    assert set(codes) <= {143, 0}, "0: it was done already"
    assert codes.count(143) > 8
