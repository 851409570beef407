"""Successive halving: who goes on, by hand; a sweep that is killed and goes on; the best of 27 with half the steps."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import finished, rl, wait_until

from rl_training.experiments.launching.scheduling.asha import FILE, Asha, Rungs
from rl_training.experiments.launching.scheduling.scores import scheduler_config
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.system.json_lines import read_rows

BASE: dict[str, Any] = {
    "algo": "ppo",
    "env_id": "CartPole-v1",
    "env": {"num_envs": 4},
    "hparams": {"num_steps": 64, "num_epochs": 4},
    "training": {"total_timesteps": 2304, "eval_frequency": 256, "num_eval_episodes": 4},
    "logging": {"tensorboard": False, "terminal": False},
}


def test_the_best_third_goes_on_as_soon_as_it_is_known() -> None:
    """Scores 5, 1, 9: with three at the rung one goes on, the one with 9; with six the next best follows."""
    rungs = Rungs(num_rungs=3, reduction=3)
    for trial, score in enumerate((5.0, 1.0)):
        rungs.add(trial, 0, score)
        assert rungs.promotable() is None
    rungs.add(2, 0, 9.0)
    assert rungs.promotable() == (2, 1)
    rungs.promote(2, 1)
    assert rungs.promotable() is None
    for trial, score in ((3, 2.0), (4, 7.0), (5, 0.0)):
        rungs.add(trial, 0, score)
    assert rungs.promotable() == (4, 1)


def test_a_higher_rung_comes_first_and_failures_never_go_on() -> None:
    rungs = Rungs(num_rungs=3, reduction=2)
    for trial in range(6):
        rungs.add(trial, 0, float(trial))
    for trial in (5, 4):
        rungs.add(trial, 1, float(trial))
    assert rungs.promotable() == (5, 2)
    rungs.promote(5, 2)
    assert rungs.promotable() == (3, 1)
    failures = Rungs(num_rungs=2, reduction=2)
    for trial in range(2):
        failures.add(trial, 0, float("-inf"))
    assert failures.promotable() is None


def write(folder: Path, **fields: Any) -> Path:
    (folder / "base.json").write_text(json.dumps({**BASE, **fields.pop("base", {})}))
    (folder / "sweep.json").write_text(json.dumps({"base_config": "base.json", "scheduler": "asha", **fields}))
    return folder / "sweep.json"


@pytest.mark.timeout(600)
def test_a_sweep_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """Four trials to the first rung, the best two to the end; such a run has the rows of one that was never paused."""
    rates = [1e-5, 1e-4, 1e-3, 3e-3]
    scheduler = {"type": "asha", "reduction": 2, "num_rungs": 2}
    swept = {"hparams.learning_rate": rates}
    file = write(tmp_path, sweep=swept, seeds=[0], parallel_jobs=2, scheduler=scheduler)
    parent = rl(["sweep", str(file), "--output-dir=runs"], tmp_path)
    wait_until(lambda: list(read_rows(next(iter(tmp_path.glob(f"runs/sweeps/*/{FILE}")), tmp_path / "none"))))
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    time.sleep(1)
    out = finished(rl(["sweep", "--resume=latest", "--output-dir=runs"], tmp_path))
    sweep = Sweep.open("latest", tmp_path / "runs")
    asha = Asha(sweep, scheduler_config(sweep.info.scheduler))
    assert len(asha.rungs.scores[0]) == 4
    assert 2 <= len(asha.rungs.scores[1]) < 4
    assert asha.is_over()
    assert "paused by the scheduler" in out
    whole = next(trial for trial in asha.rungs.scores[1])
    member = next(member for member in sweep.members if member.trial == whole)
    asha.close()
    words = ["train", "base.json", f"--hparams.learning-rate={rates[whole]}", "--seed=0", "--output-dir=alone"]
    finished(rl(words, tmp_path))
    (alone,) = tmp_path.glob("alone/ppo*")
    runs = (alone, sweep.output_dir / str(member.run))
    hashes = [json.loads((run / "run.json").read_text())["metrics_sha256"] for run in runs]
    assert hashes[0] == hashes[1]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_best_of_27_trials_with_less_than_half_of_the_steps(tmp_path: Path) -> None:
    """The grid of the PPO sweep with three entropy coefficients: learning rates of three orders of magnitude."""
    grid = {
        "hparams.learning_rate": [1e-5, 3e-4, 3e-3],
        "hparams.clip_coef": [0.1, 0.2, 0.3],
        "hparams.ent_coef": [0.0, 0.01, 0.3],
    }
    base = {"training": {"total_timesteps": 27_648, "eval_frequency": 3072, "num_eval_episodes": 20}}
    fields: dict[str, Any] = {"sweep": grid, "seeds": [0], "parallel_jobs": 2}
    finished(rl(["sweep", str(write(tmp_path, base=base, **fields)), "--output-dir=asha"], tmp_path), seconds=1400)
    finished(
        rl(["sweep", str(write(tmp_path, base=base, scheduler=None, **fields)), "--output-dir=all"], tmp_path),
        seconds=1400,
    )
    halved, whole = Sweep.open("latest", tmp_path / "asha"), Sweep.open("latest", tmp_path / "all")
    scores = {member.trial: whole.final_metrics(member)["eval/return_mean"] for member in whole.members}
    asha = Asha(halved, scheduler_config(halved.info.scheduler))
    found = max(asha.rungs.scores[-1], key=lambda trial: asha.rungs.scores[-1][trial])
    assert scores[found] == max(scores.values())
    assert asha.steps_used() < 0.5 * sum(whole.total(member) for member in whole.members)
    asha.close()
