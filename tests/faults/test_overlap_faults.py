"""Runs with overlapped collection under kill -9, SIGTERM and environments that do not come back."""

from __future__ import annotations

import time
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

import numpy as np
import pytest
from fault_runs import (
    ENVIRONMENTS,
    ROLLOUT,
    TOTAL,
    VECTORS,
    Command,
    Reference,
    Shell,
    flags,
    info,
    latest_step,
    run_directories,
    the_run,
    wait_until,
)

from rl_training.hparams.off_policy import BLOCK_ENV_STEPS
from rl_training.system.signals import GRACE_SECONDS

OVERLAP = {"env.overlap": True}
REPLAY = {
    "hparams.learning_starts": 64,
    "hparams.batch_size": 16,
    "hparams.updates_per_step": 0.1,
    "hparams.n_step": 3,
    "buffer.type": "prioritized",
    "buffer.size": 600,
    "training.total_timesteps": 6 * BLOCK_ENV_STEPS,
    "training.checkpoint_frequency": BLOCK_ENV_STEPS,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"env_id": "CartPole-v1"},
    "ppo-workers": {"env_id": "LunarLander-v3", "env.max_episode_steps": 100, **VECTORS["workers"]},
    "a2c": {"algo": "a2c", "env_id": "CartPole-v1"},
    "dqn": {"algo": "dqn", "env_id": "CartPole-v1", **REPLAY},
    "sac": {"algo": "sac", "env_id": "Pendulum-v1", **REPLAY},
}
POINTS = ("write checkpoints/*/ahead.safetensors 3", "rename checkpoints/latest 3")
FEW = ["ppo", "dqn"]


def words_of(name: str, **further: Any) -> list[str]:
    """The flags of a run; those that its algorithm does not know are left out."""
    words = flags(SETTINGS[name], OVERLAP, further)
    unknown = {"a2c": ("--hparams.num_epochs",), "dqn": ("--hparams.num_",), "sac": ("--hparams.num_",)}
    return [word for word in words if not word.startswith(unknown.get(name, ("--none",)))]


def uninterrupted(shell: Shell, folder: Path, name: str) -> Reference:
    every = ROLLOUT if name[:3] in ("ppo", "a2c") else BLOCK_ENV_STEPS
    kept = {"training.checkpoint_frequency": every, "checkpoint.keep_last": 1000}
    shell.run(folder, ["train", *words_of(name, **kept), f"--output_dir={folder}/whole"])
    return Reference.read(the_run(folder / "whole"))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FEW else pytest.mark.slow) for n in SETTINGS])
def test_killed_inside_a_save_and_at_a_random_moment(shell: Shell, folder: Path, name: str) -> None:
    """What was collected and not learnt from yet is in the checkpoint: resumed, the run is the uninterrupted one."""
    expected = uninterrupted(shell, folder, name)
    runs = folder / "runs"
    words = ["train", *words_of(name), f"--output_dir={runs}"]
    for point in POINTS:
        assert shell.start(folder, words, fault=("kill", point)).wait() == 128 + SIGKILL, point
        expected.assert_on_the_way(the_run(runs))
        words = ["resume", str(the_run(runs))]
    run = the_run(runs)
    command, before = shell.start(folder, words), latest_step(run)
    assert wait_until(lambda: latest_step(run) > before or command.ended()), command.err()
    command.signal(SIGKILL)
    command.wait()
    expected.assert_on_the_way(run)
    expected.assert_finishes(shell, folder, run)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_a_dozen_random_moments(shell: Shell, folder: Path, number: int) -> None:
    """By turns in all cases, each killed after a random step and a random while."""
    name, rng = list(SETTINGS)[number % len(SETTINGS)], np.random.default_rng(number)
    expected = uninterrupted(shell, folder, name)
    command = shell.start(folder, ["train", *words_of(name), f"--output_dir={folder}/runs"])
    assert wait_until(lambda: run_directories(folder / "runs")), command.err()
    run = the_run(folder / "runs")
    target = int(rng.integers(expected.outcome["step"]))
    assert wait_until(lambda: latest_step(run) >= target or command.ended()), command.err()
    time.sleep(0.05 * rng.random())
    command.signal(SIGKILL)
    command.wait()
    if latest_step(run) >= 0:
        expected.assert_on_the_way(run)
    expected.assert_finishes(shell, folder, run)


@pytest.mark.wall_clock
@pytest.mark.parametrize("name", ["ppo", pytest.param("ppo-workers", marks=pytest.mark.slow), "dqn"])
def test_sigterm_saves_what_was_collected(shell: Shell, folder: Path, name: str) -> None:
    expected = uninterrupted(shell, folder, name)
    words = ["train", *words_of(name), f"--output_dir={folder}/runs"]
    command = shell.start(folder, words, fault=("wait", str(TOTAL // 4)))
    assert wait_until(lambda: run_directories(folder / "runs")), command.err()
    run = the_run(folder / "runs")
    assert wait_until(lambda: latest_step(run) >= TOTAL // 4), command.err()
    sent = time.monotonic()
    command.signal(SIGTERM, to_all=name == "ppo-workers")
    assert command.wait() == 143, command.err()
    assert time.monotonic() - sent < GRACE_SECONDS
    assert f"this step is saved ({latest_step(run):,} env steps)" in command.out()
    assert info(run)["status"] == "stopped"
    assert (run / "checkpoints" / f"step_{latest_step(run):012d}" / "ahead.safetensors").stat().st_size > 0
    expected.assert_on_the_way(run)
    expected.assert_finishes(shell, folder, run)


@pytest.mark.wall_clock
@pytest.mark.parametrize("how", ["sleep", "hang"])
def test_sigterm_while_an_environment_does_not_come_back(shell: Shell, folder: Path, how: str) -> None:
    """It is stuck in the collecting thread, and the learner waits for it."""
    command, run = stuck_run(shell, folder, how)
    sent = time.monotonic()
    command.signal(SIGTERM)
    assert command.wait() == 143
    assert time.monotonic() - sent < GRACE_SECONDS
    assert "this step is not saved; the last checkpoint stands" in command.err()
    assert latest_step(run) > 0
    shell.run(folder, ["resume", str(run)])
    assert latest_step(run) == TOTAL


def stuck_run(shell: Shell, folder: Path, how: str) -> tuple[Command, Path]:
    """CartPole, stuck in its seventh rollout."""
    words = [*flags(ENVIRONMENTS["sticky"], OVERLAP), f"--output_dir={folder}/runs"]
    sticky = {"STICKY": how, "STICKY_FILE": str(folder / "stuck")}
    command = shell.start(folder, ["train", *words], variables=sticky)
    assert wait_until((folder / "stuck").exists), command.err()
    return command, the_run(folder / "runs")
