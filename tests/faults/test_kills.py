"""kill -9 at every operation of a save and at random moments: resumed to the end, the run is the uninterrupted one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import numpy as np
import pytest
from fault_runs import (
    CASES,
    NEAR_THE_END,
    ROLLOUT,
    TOTAL,
    Reference,
    Shell,
    flags,
    info,
    latest_step,
    outcome,
    run_directories,
    the_run,
    wait_until,
)
from sampling import sampled

from rl_training.config.schema import builtin_spec
from rl_training.hparams.off_policy import BLOCK_ENV_STEPS
from rl_training.registry import algorithms

FindReference = Callable[..., Reference]
KILLED = 128 + SIGKILL
SHORT = {"training.total_timesteps": 5 * ROLLOUT, "checkpoint.keep_last": 2}
"""Saves at 0, 128, 256 (an evaluation, the best so far, retires one) and 320 (the end)."""
BUILTIN = [name for name in algorithms.names() if algorithms.is_builtin(name)]
TRAINED = [name for name in BUILTIN if builtin_spec(name).kind != "offline"]
"""Offline algorithms step no environment: see tests/training/offline/test_offline.py."""
OTHERS = [name for name in TRAINED if name != "ppo" and builtin_spec(name).build is not None]

# One life each: killed while it creates, writes, syncs, publishes, points, retires, logs or goes back.
LIVES = {
    "cartpole-sync": [
        "write checkpoints/*/state.json 1",  # the very first checkpoint: there is nothing to go back to
        "fsync checkpoints/*/algorithm.safetensors 3",
        "rename checkpoints/step_000000000256 1",
    ],
    "cartpole-workers": ["rename checkpoints/latest 3"],
    "lander-sync": [
        "write checkpoints/*/env.safetensors 30",
        "rename checkpoints/best 1",
        "remove checkpoints/* 1",
    ],
    "lander-workers": ["fsync logs/metrics.jsonl 2"],
}


def killed_at_random(shell: Shell, folder: Path, words: list[str], runs: Path, rng: np.random.Generator) -> Path:
    """Kill a command some time after a random step of the run was saved; the run."""
    command = shell.start(folder, words, fault=NEAR_THE_END)
    assert wait_until(lambda: run_directories(runs)), command.err()
    run = the_run(runs)
    start, moment = latest_step(run), rng.random()
    target = start + max(int(moment * (TOTAL - 4 * ROLLOUT - start)), 0)
    assert wait_until(lambda: latest_step(run) >= target), command.err()
    time.sleep(0.03 * rng.random())
    command.signal(SIGKILL)
    assert command.wait() == KILLED
    return run


@pytest.mark.parametrize("case", CASES)
def test_killed_inside_saves_and_at_random_moments(
    shell: Shell, folder: Path, reference: FindReference, case: str
) -> None:
    """Several kills in one life, each checked: three named operations or one, then two random moments."""
    expected = reference(case.split("-")[0])
    runs = folder / "runs"
    words = ["train", *flags(CASES[case], {"output_dir": runs, "checkpoint.keep_last": 2})]
    for point in LIVES[case]:
        assert shell.start(folder, words, fault=("kill", point)).wait() == KILLED, point
        if latest_step(the_run(runs)) >= 0:
            expected.assert_on_the_way(the_run(runs))
        words = ["resume", str(the_run(runs))]
    rng = np.random.default_rng(sum(case.encode()))
    for _ in range(2):
        run = killed_at_random(shell, folder, words, runs, rng)
        expected.assert_on_the_way(run)
        assert info(run)["status"] in ("running", "finished")  # a quick run may have come to its end
        words = ["resume", str(run)]
    expected.assert_finishes(shell, folder, the_run(runs))


def test_killed_and_resumed_as_a_user_does_it(shell: Shell, folder: Path, reference: FindReference) -> None:
    """With a new Python for each command, and the variable that lets anybody try it."""
    expected = reference("cartpole")
    words = flags(CASES["cartpole-sync"], {"output_dir": folder / "runs"})
    killed = shell.start_fresh(folder, ["train", *words], {"RL_TRAINING_FAULT_POINT": "333"})
    assert killed.wait() == KILLED
    run = the_run(folder / "runs")
    step = expected.assert_on_the_way(run)
    assert 0 < step < TOTAL
    resumed = shell.start_fresh(folder, ["resume", str(run)])
    assert resumed.wait() == 0, resumed.err()
    assert outcome(run) == expected.outcome
    assert f"resumed from step_{step:012d}" in (run / "logs" / "train.log").read_text()


@pytest.mark.parametrize("point", ["write configs/* 1", "rename run.json 1"])
def test_killed_before_there_is_a_run(shell: Shell, folder: Path, point: str) -> None:
    """Half a directory is not a run: it is not listed, and a resume says so."""
    words = flags(CASES["cartpole-sync"], {"output_dir": folder / "runs"})
    assert shell.start(folder, ["train", *words], fault=("kill", point)).wait() == KILLED
    assert run_directories(folder / "runs") == []
    (half,) = (folder / "runs").iterdir()
    refused = shell.start(folder, ["resume", str(half)])
    assert refused.wait() == 2
    assert "is not a run: it has no run.json" in refused.err()


ENSEMBLE: dict[str, object] = {
    "hparams.n_step": 1,
    "hparams.dynamics.kwargs": {"members": 2, "hidden": 8, "layers": 1},
    "buffer.type": "replay",
    "env.normalize_obs": False,
    "env.normalize_reward": False,
}
PLANNING = {f"hparams.{name}": value for name, value in (("candidates", 8), ("elites", 2), ("plan_horizon", 3))}


def other_settings(algo: str) -> list[str]:
    """Five train steps with a checkpoint after each; what learns from replay wraps around its buffer meanwhile."""
    if builtin_spec(algo).kind != "off_policy":
        small = {"algo": algo, "env_id": "CartPole-v1", "training.total_timesteps": 5 * ROLLOUT}
        settings = flags(small, {"training.checkpoint_frequency": ROLLOUT})
        return [word for word in settings if not word.startswith("--hparams.num_epochs")]
    if algo in ("dreamer", "planet", "dynamics"):
        return [word for word in flags(world_model_settings(algo)) if not word.startswith("--hparams.num_")]
    replay: dict[str, object] = {
        "algo": algo,
        "env_id": "CartPole-v1" if algo in ("dqn", "sac") else "Pendulum-v1",
        "hparams.learning_starts": 64,
        "hparams.batch_size": 16,
        "hparams.updates_per_step": 0.1,
        "hparams.n_step": 3,
        "buffer.type": "prioritized",
        "buffer.size": 600,
        "training.total_timesteps": 5 * BLOCK_ENV_STEPS,
        "training.checkpoint_frequency": BLOCK_ENV_STEPS,
    }
    if builtin_spec(algo).whole_teams:
        replay |= {"env_id": "RLTeam/Leaving-v0", "env.agents.reward": "team_mean", "hparams.n_step": 1}
        replay["buffer.type"] = "replay"
    if algo in ("pets", "mbpo"):
        replay |= ENSEMBLE | (PLANNING if algo == "pets" else {"hparams.real_updates": 20})
    return [word for word in flags(replay) if not word.startswith("--hparams.num_")]


def world_model_settings(algo: str) -> dict[str, object]:
    """Sequences of four steps with stored states; a model of a few thousand weights, a search of a few candidates."""
    widths = {"deter": 16, "hidden": 8, "stoch": 4, "classes": 4, "units": 8, "layers": 1, "bins": 21}
    search = {"candidates": 8, "elites": 2, "iterations": 2, "plan_horizon": 3}
    own = {"planet": search, "dreamer": {"imagine_last": 2}, "dynamics": {}}[algo]
    hparams = {"batch_size": 4, "sequence_length": 4, "train_ratio": 2, "learning_starts": 64, "size": "custom", **own}
    return {
        "algo": algo,
        "env_id": "RLProbe/Catch-v0" if algo == "dreamer" else "Pendulum-v1",
        **{f"hparams.{name}": value for name, value in hparams.items()},
        **{f"hparams.custom.{name}": value for name, value in widths.items()},
        "env.normalize_obs": False,
        "env.normalize_reward": False,
        "buffer.size": 600,
        "training.total_timesteps": 5 * BLOCK_ENV_STEPS,
        "training.checkpoint_frequency": BLOCK_ENV_STEPS,
    }


@pytest.mark.parametrize("algo", sampled(OTHERS, ("dqn", "impala", "mbpo", "dreamer")))
def test_every_other_algorithm(shell: Shell, folder: Path, algo: str) -> None:
    settings = other_settings(algo)
    shell.run(folder, ["train", *settings, f"--output_dir={folder}/whole", "--checkpoint.keep_last=9"])
    expected = Reference.read(the_run(folder / "whole"))
    words = ["train", *settings, f"--output_dir={folder}/runs"]
    for point in ("write checkpoints/*/collector.safetensors 12", "rename checkpoints/latest 2"):
        assert shell.start(folder, words, fault=("kill", point)).wait() == KILLED
        expected.assert_on_the_way(the_run(folder / "runs"))
        words = ["resume", str(the_run(folder / "runs"))]
    expected.assert_finishes(shell, folder, the_run(folder / "runs"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lane", ["host", "compiled"])
def test_dreamer_in_jax(shell: Shell, folder: Path, lane: str) -> None:
    """Replayed latents, the carry and the model of both lanes; the programs are compiled once, by the first run."""
    backend = ["--backend=jax", f"--lane={lane}"]
    settings = [*other_settings("dreamer"), *backend]
    first = shell.start(folder, ["train", *settings, f"--output_dir={folder}/whole", "--checkpoint.keep_last=9"])
    assert first.wait(300.0) == 0, first.err()
    expected = Reference.read(the_run(folder / "whole"))
    words = ["train", *settings, f"--output_dir={folder}/runs"]
    for point in ("fsync checkpoints/*/algorithm.safetensors 3", "rename checkpoints/latest 2"):
        assert shell.start(folder, words, fault=("kill", point)).wait(300.0) == KILLED
        expected.assert_on_the_way(the_run(folder / "runs"))
        words = ["resume", str(the_run(folder / "runs"))]
    run = killed_after_a_save(shell, folder, words)
    expected.assert_on_the_way(run)
    last = shell.start(folder, ["resume", str(run)])
    assert last.wait(300.0) == 0, last.err()
    expected.assert_equal(run, last.err())


def killed_after_a_save(shell: Shell, folder: Path, words: list[str]) -> Path:
    """Kill a resume at a random moment after it saved once more, or at its end where it was quicker."""
    run = the_run(folder / "runs")
    start = latest_step(run)
    command = shell.start(folder, words)
    assert wait_until(lambda: latest_step(run) > start, 300.0), command.err()
    time.sleep(0.2 * np.random.default_rng(start).random())
    command.signal(SIGKILL)
    assert command.wait() in (KILLED, 0)
    return run


# -- all of it --------------------------------------------------------------------------------------------------------


def operations(shell: Shell, folder: Path, words: list[str]) -> list[str]:
    """Every operation on the disk that a command comes to, by name and in order."""
    shell.run(folder, words, fault=("record", str(folder / "operations")))
    return (folder / "operations").read_text().splitlines()


def is_timed(operation: str) -> bool:
    """Rows are flushed by the clock, so the last of these writes may not come every time."""
    return operation.startswith("write logs/")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_operation(shell: Shell, folder: Path, reference: FindReference, case: str) -> None:
    """CartPole in one process: of a whole run, from its first file to its last. Elsewhere: of one save with all that a
    save can do, from the sync of the logs to the removal of a retired checkpoint."""
    expected = reference(case.split("-")[0], SHORT)
    setting = flags(CASES[case], SHORT)
    points = operations(shell, folder, ["train", *setting, f"--output_dir={folder}/recorded"])
    if case != "cartpole-sync":
        end = next(i for i, point in enumerate(points) if point.startswith("remove"))
        start = max(i for i, point in enumerate(points[:end]) if point.startswith("fsync logs/metrics"))
        points = points[start : end + 1]
    killed = 0
    for number, point in enumerate(points):
        runs = folder / f"runs-{number}"
        code = shell.start(folder, ["train", *setting, f"--output_dir={runs}"], fault=("kill", point)).wait()
        assert code == KILLED or (code == 0 and is_timed(point)), point
        killed += code == KILLED
        for run in run_directories(runs):
            if latest_step(run) >= 0:
                expected.assert_on_the_way(run)
            expected.assert_finishes(shell, folder, run)
        if runs.exists():  # the first operation makes it
            shutil.rmtree(runs)
    print(f"{case}: killed at {killed} of {len(points)} operations")
    assert killed > 80


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_resume_killed_at_every_operation(shell: Shell, folder: Path, reference: FindReference) -> None:
    """A resume that has to give up what came after a damaged checkpoint, and is itself killed on the way."""
    expected = reference("cartpole", SHORT)
    runs = folder / "runs"
    words = flags(CASES["cartpole-sync"], SHORT, {"output_dir": runs, "checkpoint.keep_last": 3})
    assert shell.start(folder, ["train", *words], fault=("kill", "create * 4")).wait() == KILLED
    run = the_run(runs)
    (run / "checkpoints" / "step_000000000320" / "policy.safetensors").write_bytes(b"damaged")
    prepared = folder / "prepared"
    shutil.copytree(run, prepared)
    points = operations(shell, folder, ["resume", str(run)])
    for point in points:
        shutil.rmtree(run)
        shutil.copytree(prepared, run)
        code = shell.start(folder, ["resume", str(run)], fault=("kill", point)).wait()
        assert code == KILLED or (code == 0 and is_timed(point)), point
        expected.assert_on_the_way(run)
        expected.assert_finishes(shell, folder, run)
    print(f"resume: killed at {len(points)} operations")
    assert len(points) > 80


@pytest.mark.slow
@pytest.mark.parametrize("number", range(50))
def test_50_random_moments(shell: Shell, folder: Path, reference: FindReference, number: int) -> None:
    """One kill each, by turns in the four cases."""
    case = list(CASES)[number % len(CASES)]
    expected = reference(case.split("-")[0])
    words = ["train", *flags(CASES[case], {"output_dir": folder / "runs"})]
    run = killed_at_random(shell, folder, words, folder / "runs", np.random.default_rng(number))
    expected.assert_on_the_way(run)
    expected.assert_finishes(shell, folder, run)
