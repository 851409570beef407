"""`rl tune` with real processes, from the file to a config that trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.cli import main

BASE = """\
algo: random
env_id: CartPole-v1
env: {num_envs: 2}
training: {total_timesteps: 64, num_eval_episodes: 1}
hparams: {num_steps: 16}
logging: {tensorboard: false, terminal: false}
"""
FILE = """\
base_config: base.yaml
space: none
sampler: random
sweep: {hparams.num_steps: [8, 16, 32]}
num_trials: 1
seeds: [0, 1]
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)
    Path("tune.yaml").write_text(FILE)


def test_from_the_file_to_the_best_config(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--config", "tune.yaml", "--env.num-envs=1", "--export-best", "best.yaml", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (trial,) = result["trials"]
    assert (trial["state"], len(trial["scores"])) == ("complete", 2)
    assert result["best"] == trial
    assert result["exported"] == "best.yaml"
    text = Path("best.yaml").read_text()
    assert f"num_steps: {trial['values']['hparams.num_steps']}" in text
    assert "num_envs: 1" in text
    assert main(["config", "validate", "best.yaml", "tune.yaml"]) == 0
    capsys.readouterr()
    assert main(["tune", "--resume", "latest"]) == 0
    captured = capsys.readouterr()
    assert "nothing to do: 1 of 1 trials are done; --trials asks for more" in captured.err
    assert "1 trials: 1 complete" in captured.out
    assert main(["list", f"sweep={Path(result['path']).name}", "--json"]) == 0
    assert {run["seed"] for run in json.loads(capsys.readouterr().out)} == {0, 1}


def test_dry_run_and_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "tune.yaml", "--dry-run", "--trials", "7", "--seed", "0..9", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["num_trials"], len(shown["seeds"]), shown["sweep"]) == (7, 10, {"hparams.num_steps": [8, 16, 32]})
    assert main(["tune", "tune.yaml", "--dry-run"]) == 0
    assert "8, 16, 32" in capsys.readouterr().out
    assert main(["tune"]) == 2
    assert main(["tune", "--resume", "latest"]) == 2
    assert main(["tune", "--resume", "latest", "--sampler", "tpe"]) == 2
    assert "a resumed search keeps its config; drop --sampler" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_successive_halving_of_suggested_trials(capsys: pytest.CaptureFixture[str]) -> None:
    """Two trials to half of their steps, the better one to the end; a third one when more are asked for."""
    text = FILE.replace("num_trials: 1", "num_trials: 2").replace("seeds: [0, 1]", "seeds: [0]")
    Path("asha.yaml").write_text(text + "scheduler: {type: asha, reduction: 2, num_rungs: 2}\nparallel_jobs: 2\n")
    assert main(["tune", "asha.yaml", "--dry-run"]) == 0
    assert "random with scheduler asha" in capsys.readouterr().out
    assert main(["tune", "asha.yaml", "--pruner", "median"]) == 2
    assert "drop one of the two" in capsys.readouterr().err
    assert main(["tune", "asha.yaml", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert "2 trials x 1 seeds, scheduled by asha" in captured.err
    assert "96 env steps, 75% of running every trial to its end" in captured.err
    assert sorted((trial["state"], len(trial["scores"])) for trial in result["trials"]) == [
        ("complete", 2),
        ("paused", 1),
    ]
    assert result["best"]["state"] == "complete"
    assert main(["resume", result["path"]]) == 2
    assert "go on with `rl tune --resume" in capsys.readouterr().err
    assert main(["tune", "--resume", "latest"]) == 0
    captured = capsys.readouterr()
    assert "nothing to do: the scheduler has no trial left to go on with; --trials asks for more" in captured.err
    assert "rungs" in captured.out
    assert "2 trials: 1 complete, 1 paused" in captured.out
    assert main(["tune", "--resume", "latest", "--trials", "3"]) == 0
    assert "3 trials: 1 complete, 2 paused" in capsys.readouterr().out


@pytest.mark.slow
def test_a_population_of_suggested_trials(capsys: pytest.CaptureFixture[str]) -> None:
    """Two trials of two intervals; the worse one is replaced by a branch of the better one."""
    base = BASE.replace("algo: random", "algo: ppo").replace("{num_steps: 16}", "{num_steps: 16, num_minibatches: 1}")
    Path("base.yaml").write_text(base.replace("total_timesteps: 64", "total_timesteps: 1024"))
    text = FILE.replace("num_trials: 1", "num_trials: 3").replace("seeds: [0, 1]", "seeds: [0]")
    text = text.replace("sweep: {hparams.num_steps: [8, 16, 32]}", "sweep: {hparams.gamma: [0.5, 0.9, 0.99]}")
    Path("pbt.yaml").write_text(text + "scheduler: {type: pbt, num_intervals: 2}\nparallel_jobs: 2\n")
    assert main(["tune", "pbt.yaml", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    states = [trial["state"] for trial in result["trials"]]
    assert (states.count("complete"), states.count("pruned")) == (3, len(states) - 3)
    assert result["best"]["trial"] is not None
