"""Population-based training: the worst goes on from the best, with changed values; the same outcome after a kill."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import finished, rl, wait_until

from rl_training.experiments.launching.scheduling.pbt import FILE
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.runs.directory import CLOCK_KEYS, RunDir
from rl_training.system.json_lines import read_rows

RATES = [1e-5, 1e-4, 1e-3, 3e-3]


def write(folder: Path, num_intervals: int = 2) -> Path:
    base = {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "env": {"num_envs": 4},
        "hparams": {"num_steps": 64, "num_epochs": 4},
        "training": {"total_timesteps": 1024 * num_intervals, "eval_frequency": 512, "num_eval_episodes": 4},
        "logging": {"tensorboard": False, "terminal": False},
    }
    (folder / "base.json").write_text(json.dumps(base))
    scheduler = {"type": "pbt", "num_intervals": num_intervals}
    sweep = {"base_config": "base.json", "sweep": {"hparams.learning_rate": RATES}, "seeds": [0], "parallel_jobs": 2}
    (folder / "sweep.json").write_text(json.dumps({**sweep, "scheduler": scheduler}))
    return folder / "sweep.json"


def rows_of(run: Path) -> list[dict[str, Any]]:
    rows = read_rows(run / "logs" / "metrics.jsonl")
    return [{key: value for key, value in row.items() if not key.startswith(CLOCK_KEYS)} for row in rows]


@pytest.mark.timeout(900)
def test_the_worst_goes_on_from_the_best(tmp_path: Path) -> None:
    file = write(tmp_path)
    finished(rl(["sweep", str(file), "--output-dir=runs"], tmp_path), seconds=400)
    sweep = Sweep.open("latest", tmp_path / "runs")
    start, first = decisions = list(read_rows(sweep.path / FILE))
    assert (start["interval"], start["slots"]) == (0, [0, 1, 2, 3])
    assert first["interval"] == 1
    scores = first["scores"]
    worst = min(range(4), key=lambda place: (scores[place], -place))
    best = max(range(4), key=lambda place: (scores[place], -place))
    assert first["slots"] == [4 if place == worst else place for place in range(4)]
    rate = sweep.info.trials[4]["hparams.learning_rate"]
    assert rate in (pytest.approx(RATES[best] * 0.8), pytest.approx(RATES[best] * 1.25))
    by_trial = {member.trial: member for member in sweep.members}
    source, branch = (sweep.output_dir / str(by_trial[trial].run) for trial in (best, 4))
    info = RunDir(branch).info()
    assert info["parent"] == f"{source.name}:1024"
    assert info["config_sha256"] == by_trial[4].config_sha256
    assert rows_of(branch)[:4] == rows_of(source)[:4]  # its history is that of the model
    if by_trial[4].status == "finished":
        assert rows_of(branch)[4]["train/learning_rate"] == pytest.approx(rate)
    ended = [sweep.output_dir / str(by_trial[trial].run) for trial in decisions[-1]["slots"]]
    assert [RunDir(run).info()["status"] for run in ended] == ["finished"] * 4


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_population_that_is_killed_decides_the_same(tmp_path: Path) -> None:
    """Three intervals, once undisturbed with two slots, once killed after the first decision and gone on with one."""
    outcomes = []
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        parent = rl(["sweep", str(write(tmp_path / name, 3)), "--output-dir=runs"], tmp_path / name)
        if name == "killed":
            journal = tmp_path / name / "runs" / "sweeps"
            wait_until(
                lambda folder=journal: [r for f in folder.glob(f"*/{FILE}") for r in read_rows(f) if r["interval"]],
                seconds=300,
            )
            time.sleep(3)
            parent.send_signal(signal.SIGKILL)
            parent.communicate()
            time.sleep(1)
            parent = rl(["sweep", "--resume=latest", "--output-dir=runs", "--jobs=1"], tmp_path / name)
        finished(parent, seconds=500)
        sweep = Sweep.open("latest", tmp_path / name / "runs")
        rows = [(row["slots"], row["scores"]) for row in read_rows(sweep.path / FILE)]
        outcomes.append((rows, sweep.info.trials))
    assert outcomes[0] == outcomes[1]
