"""What else must be right when a run is stopped, resumed, extended or wanted by two: lock, best, videos, its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGTERM, SIGUSR1
from typing import Any

import pytest
from fault_runs import (
    CASES,
    ENVIRONMENTS,
    ROLLOUT,
    TOTAL,
    Command,
    Reference,
    Shell,
    flags,
    info,
    latest_step,
    outcome,
    run_directories,
    session_members,
    the_run,
    wait_until,
)

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.runs.lock import read_holder

FindReference = Callable[..., Reference]
KILLED = 128 + SIGKILL
SHORT = {"training.total_timesteps": 5 * ROLLOUT, "checkpoint.keep_last": 2}
STEADY = {"env.max_episode_steps": 5}
"""CartPole stands that long whatever is done: every evaluation returns 5, so the first, at 256, stays the best."""


def words_of(folder: Path, *settings: dict[str, Any]) -> list[str]:
    return ["train", *flags(CASES["cartpole-sync"], *settings, {"output_dir": folder / "runs"})]


# -- two processes ----------------------------------------------------------------------------------------------------


@pytest.mark.wall_clock
def test_a_second_process_is_refused_and_a_dead_one_does_not_matter(
    shell: Shell, folder: Path, reference: FindReference
) -> None:
    settings = flags(ENVIRONMENTS["sticky"], {"output_dir": folder / "runs"})
    sticky = {"STICKY": "sleep", "STICKY_FILE": str(folder / "stuck")}
    first = shell.start(folder, ["train", *settings], variables=sticky)
    assert wait_until((folder / "stuck").exists), first.err()
    run = the_run(folder / "runs")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    started = time.monotonic()
    second = shell.start(folder, ["resume", str(run)])
    assert second.wait() == 1
    assert time.monotonic() - started < 5
    assert f"is in use by process {first.pid} on " in second.err()
    assert f"wait until it ends, or stop it with `kill {first.pid}`" in second.err()
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before, "the second one touched the run"
    first.signal(SIGKILL)
    assert first.wait() == KILLED
    holder = read_holder(run / ".lock")
    assert holder is not None
    assert holder.pid == first.pid, "a killed process cannot give its lock back"
    reference("sticky").assert_finishes(shell, folder, run)
    assert read_holder(run / ".lock") is None


# -- the end of a run -------------------------------------------------------------------------------------------------


def test_a_finished_run_says_so_and_goes_on_with_a_larger_budget(
    shell: Shell, folder: Path, reference: FindReference
) -> None:
    shell.run(folder, words_of(folder, {"training.total_timesteps": TOTAL // 2}))
    run = the_run(folder / "runs")
    finished = outcome(run)
    again = shell.run(folder, ["resume", str(run)])
    assert "nothing to do: this run is finished (budget spent)" in again.out()
    assert f"rl resume {run} --total-timesteps {TOTAL}" in again.out()
    assert f"rl eval {run}" in again.out()
    assert outcome(run) == finished

    longer = ["resume", str(run), "--total-timesteps", str(TOTAL)]
    killed = shell.start(folder, longer, fault=("kill", "rename checkpoints/step_000000000896 1"))
    assert killed.wait() == KILLED
    expected = reference("cartpole")
    assert expected.assert_on_the_way(run) == 768
    expected.assert_finishes(shell, folder, run)  # without the flag: the larger budget is the run's own by now
    assert (info(run)["total_timesteps"], info(run)["exit_code"]) == (TOTAL, 0)


@pytest.mark.parametrize("point", ["create * 4", "fsync . 5"])
def test_killed_after_the_last_checkpoint(shell: Shell, folder: Path, reference: FindReference, point: str) -> None:
    """All that is left to do is to write the summary and to say that it is finished."""
    assert shell.start(folder, words_of(folder, SHORT), fault=("kill", point)).wait() == KILLED
    run = the_run(folder / "runs")
    assert latest_step(run) == 5 * ROLLOUT
    expected = reference("cartpole", SHORT)
    if info(run)["status"] == "running":
        expected.assert_finishes(shell, folder, run)
    expected.assert_equal(run)
    assert (run / "metrics.json").is_file()


def test_a_run_that_reached_its_goal_does_not_train_on(shell: Shell, folder: Path) -> None:
    """Killed when the goal was reached and saved, but not yet said: the resumed run ends there, as it would have."""
    goal = {**STEADY, "training.stop_at_return": 5.0}
    shell.run(folder, ["train", *flags(CASES["cartpole-sync"], goal, {"output_dir": folder / "whole"})])
    expected = Reference.read(the_run(folder / "whole"))
    assert expected.outcome["step"] == 256
    killed = shell.start(folder, words_of(folder, goal), fault=("kill", "create * 4"))
    assert killed.wait() == KILLED
    run = the_run(folder / "runs")
    assert info(run)["status"] == "running"
    expected.assert_finishes(shell, folder, run)
    again = shell.run(folder, ["resume", str(run)])
    assert "nothing to do: this run is finished (solved: evaluation return" in again.out()
    shell.run(folder, ["resume", str(run), "--total-timesteps", str(TOTAL)])
    assert latest_step(run) == 512, "asked to go on, it does so until the next evaluation that reaches the goal"


# -- best, videos -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["rename checkpoints/best 1", "rename checkpoints/latest 3"])
def test_best_is_right_after_a_kill_between_the_pointers(
    shell: Shell, folder: Path, reference: FindReference, point: str
) -> None:
    expected = reference("cartpole", {**SHORT, **STEADY})
    assert expected.outcome["best"] == 256
    assert shell.start(folder, words_of(folder, SHORT, STEADY), fault=("kill", point)).wait() == KILLED
    run = the_run(folder / "runs")
    expected.assert_finishes(shell, folder, run)
    assert CheckpointManager(run).load("best").metadata["score"] is not None


def test_best_and_videos_newer_than_the_checkpoint_are_dropped(shell: Shell, folder: Path) -> None:
    """Videos at 128, 256 and 384. Stopped in the first of them, by a signal to all processes, the encoder's included;
    killed while it saves at 384; then the checkpoint at 256, the best, is damaged."""
    setting = {**STEADY, "training.total_timesteps": 6 * ROLLOUT, "logging.video_frequency": 2 * ROLLOUT}
    shell.run(folder, ["train", *flags(CASES["cartpole-sync"], setting, {"output_dir": folder / "whole"})])
    expected = outcome(the_run(folder / "whole"))
    assert expected["videos"] == [f"step_{step:012d}.mp4" for step in (128, 256, 384)]
    assert expected["best"] == 256
    stopped = shell.start(folder, words_of(folder, setting))
    assert wait_until(lambda: len(session_members(stopped.pid)) == 2 and run_directories(folder / "runs"))
    stopped.signal(SIGUSR1, to_all=True)
    assert stopped.wait() == 75, stopped.err()
    run = the_run(folder / "runs")
    saving = ("kill", "rename checkpoints/step_000000000384 1")
    assert shell.start(folder, ["resume", str(run)], fault=saving).wait() == KILLED
    assert sorted(path.name for path in (run / "videos").iterdir()) == expected["videos"]
    (run / "videos" / ".tmp-0123456789abcdef").write_bytes(b"what a killed encoder leaves")
    (run / "checkpoints" / "step_000000000256" / "state.json").write_bytes(b"")
    gone_back = ("kill", "create * 1")  # its first words in run.json, before it trains
    assert shell.start(folder, ["resume", str(run)], fault=gone_back).wait() == KILLED
    assert [path.name for path in (run / "videos").iterdir()] == ["step_000000000128.mp4"]
    manager = CheckpointManager(run)
    assert (manager.best_step(), manager.steps()) == (None, [0, 128])
    shell.run(folder, ["resume", str(run)])
    assert outcome(run) == expected


@pytest.mark.slow
def test_a_life_full_of_interruptions(shell: Shell, folder: Path, reference: FindReference) -> None:
    """By turns stopped and killed as soon as it has saved anything; two sound checkpoints are there all the time."""
    expected = reference("lander")
    words = ["train", *flags(CASES["lander-sync"], {"output_dir": folder / "runs", "checkpoint.keep_last": 2})]
    run, lives = None, 0
    while run is None or latest_step(run) < TOTAL:
        command = shell.start(folder, words)
        assert wait_until(lambda: run_directories(folder / "runs"))
        run = the_run(folder / "runs")
        saved_more(run, command)
        command.signal(SIGKILL if lives % 2 else SIGTERM)
        assert command.wait() in (143, KILLED) or latest_step(run) == TOTAL
        expected.assert_on_the_way(run)
        words = ["resume", str(run)]
        lives += 1
    print(f"{lives} lives")
    assert lives >= 6
    expected.assert_finishes(shell, folder, run)


def saved_more(run: Path, command: Command) -> None:
    """Wait until there is a newer checkpoint than now."""
    before = latest_step(run)
    assert wait_until(lambda: latest_step(run) > before), command.err()
