"""`rl sweep` with real processes: killed again and again it ends with the table of one that was never touched."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.cli import main
from rl_training.experiments.analysis.group_summary import aggregate
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.runs.directory import RunDir, metrics_sha256

Captured = pytest.CaptureFixture[str]
BASE = """\
algo: ppo
env_id: CartPole-v1
env: {num_envs: 2}
hparams: {num_steps: 32, num_epochs: 1}
training: {total_timesteps: 512, eval_frequency: 256, num_eval_episodes: 1, checkpoint_frequency: 64}
logging: {tensorboard: false, terminal: false}
"""
GRID = "base_config: base.yaml\nsweep: {algorithm.lr: [1e-3, 3e-4], algorithm.clip_ratio: [0.1, 0.2]}\nseeds: [0, 1]\n"
PAIR = "base_config: base.yaml\nsweep: {algorithm.lr: [1e-3, 3e-4]}\nseeds: [0, 1]\n"
LARGE = (
    "base_config: base.yaml\nseeds: [0, 1]\nparallel_jobs: 2\nsweep: {algorithm.lr: [1e-3, 3e-4, 1e-4], "
    "algorithm.clip_ratio: [0.1, 0.2, 0.3], algorithm.gamma: [0.9, 0.95, 0.99]}\n"
)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)
    Path("sweep.yaml").write_text(GRID)


def start(*words: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rl_training", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 200
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return found


def finished_runs() -> int:
    return len(list(Path("runs").glob("*/metrics.json")))


def running_member() -> int | None:
    """The process of a member that has come to its first checkpoint, if there is one now."""
    for lock in Path("runs").glob("*/.lock"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            if (lock.parent / "checkpoints" / "latest").exists():
                return int(json.loads(lock.read_bytes())["pid"])
    return None


def table_of(summary: dict[str, Any]) -> list[Any]:
    """What must not depend on how often a sweep was killed."""
    return [
        (trial["values"], trial["return"], [(run["seed"], run["status"], run["return"]) for run in trial["runs"]])
        for trial in summary["trials"]
    ]


def killed_again_and_again(kills: int) -> dict[str, Any]:
    """Start a sweep, and each time somebody is at work kill the parent, or (every second time) that one too."""
    parent = start("sweep", "--config", "sweep.yaml")
    for kill in range(kills):
        pid = wait_for(running_member)
        if kill % 2:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.kill()
        parent.communicate()
        parent = start("sweep", "--resume", "latest", "--json")
    out, err = parent.communicate(timeout=3000)
    assert parent.returncode == 0, err
    result: dict[str, Any] = json.loads(out)
    return result


def untouched(sweep: Sweep) -> list[Any]:
    """The same table from runs in this process that know of no sweep."""
    rows = []
    for number, values in enumerate(sweep.info.trials):
        runs = []
        for member in sweep.members:
            if member.trial == number:
                cfg = replace(sweep.config(number), seed=member.seed, output_dir="alone")
                alone = rl_training.train(cfg)
                log = sweep.output_dir / str(member.run) / "logs" / "metrics.jsonl"
                assert metrics_sha256(log) == metrics_sha256(alone.run_dir / "logs" / "metrics.jsonl")
                runs.append((member.seed, "finished", alone.metrics["eval/return_mean"]))
        rows.append((values, aggregate([score for _, _, score in runs]), runs))
    return sorted(rows, key=lambda row: -row[1]["iqm"]["value"] if row[1] else 0.0)


@pytest.mark.timeout(600)  # six processes that import torch, one after the other
def test_a_sweep_killed_twice_ends_with_the_same_table() -> None:
    Path("sweep.yaml").write_text(PAIR)
    result = killed_again_and_again(2)
    sweep = Sweep.open("latest")
    assert table_of(result) == untouched(sweep)
    assert json.loads((sweep.path / "summary.json").read_text())["trials"] == result["trials"]
    runs = [path for path in Path("runs").iterdir() if (path / "run.json").exists()]
    assert len(runs) == 4  # nobody was started twice
    assert {RunDir(run).info()["sweep"] for run in runs} == {sweep.info.id}


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_large_sweep_killed_five_times_ends_with_the_same_table() -> None:
    Path("sweep.yaml").write_text(LARGE)
    result = killed_again_and_again(5)
    sweep = Sweep.open("latest")
    assert len(sweep.members) == 54
    assert table_of(result) == untouched(sweep)


def test_a_trial_that_fails_is_told_kept_and_tried_again(capsys: Captured) -> None:
    Path("faulty.py").write_text(
        "import os, gymnasium\n\n\ndef Env(broken=0):\n"
        "    if broken and not os.path.exists('mended'):\n        raise ValueError('the plug is out')\n"
        "    return gymnasium.make('CartPole-v1')\n"
    )
    Path("sweep.yaml").write_text("base_config: base.yaml\nsweep: {env.kwargs.broken: [0, 1]}\nparallel_jobs: 2\n")
    assert main(["sweep", "sweep.yaml", "--env-id=faulty:Env", "--name=mine", "--total-timesteps=64"]) == 1
    captured = capsys.readouterr()
    assert "1 of 2 runs finished" in captured.out
    assert "trial 1 seed 0: failed; " in captured.out
    assert "the plug is out" in captured.out
    assert "--retries 1" in captured.out
    assert main(["resume", "mine"]) == 1  # what failed is left alone
    assert "nothing to do: 1 of 2 runs are finished; 1 failed" in capsys.readouterr().err
    Path("mended").touch()
    assert main(["sweep", "--resume", "mine", "--retries=1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [run["status"] for trial in result["trials"] for run in trial["runs"]] == ["finished"] * 2
    assert main(["eval", "mine"]) == 2
    assert "a sweep is not evaluated as a whole" in capsys.readouterr().err
    assert main(["show", "mine"]) == 0
    assert "2 of 2 runs finished" in capsys.readouterr().out
    assert main(["list", f"sweep={result['sweep']}", "--json", "--columns=env.kwargs.broken"]) == 0
    assert sorted(row["env.kwargs.broken"] for row in json.loads(capsys.readouterr().out)) == [0, 1]


def test_the_array_job_trains_one_run_per_task(capsys: Captured) -> None:
    Path("sweep.yaml").write_text("base_config: base.yaml\ntrials: [{algorithm.lr: 1e-3}, {algorithm.lr: 3e-4}]\n")
    assert main(["sweep", "sweep.yaml", "--emit=slurm", "--jobs=7", "--json"]) == 0
    script = json.loads(capsys.readouterr().out)["script"]
    assert "#SBATCH --array=0-1%7\n" in Path(script).read_text()
    assert finished_runs() == 0
    for _ in range(2):  # the second time there is nothing left to do
        task = subprocess.run(["bash", script], env={**os.environ, "SLURM_ARRAY_TASK_ID": "1"}, check=False)
        assert task.returncode == 0
    sweep = Sweep.open("latest")
    assert [member.status for member in sweep.members] == ["waiting", "finished"]
    info = RunDir(sweep.output_dir / str(sweep.members[1].run)).info()
    assert (info["sweep"], info["group"]) == (sweep.info.id, f"{sweep.info.id}/trial_001")
    assert info["config_sha256"] == sweep.members[1].config_sha256
    assert main(["sweep", "--resume=latest", "--only=2"]) == 2


def test_a_dry_run_shows_the_trials(capsys: Captured) -> None:
    assert main(["sweep", "sweep.yaml", "--dry-run", "--seed=1..3"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "Plan  4 trials x 3 seeds = 12 runs, 1 at a time"
    assert lines[4].split() == ["0", "0.001", "0.1"]
    assert captured.err == "dry run: nothing was written\n"
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs a sweep file"),
        (["sweep.yaml", "--config=base.yaml"], "two configs are named"),
        (["base.yaml"], "'rl train base.yaml' runs it"),
        (["sweep.yaml", "--only=1"], "name it with --resume"),
        (["--resume=nothing"], "no sweep 'nothing'"),
        (["--resume=latest", "--algo=ppo"], "keeps its configs; drop --algo"),
        (["sweep.yaml", "--emit=pbs"], "--emit is one of slurm"),
        (["sweep.yaml", "--hparams.clip-coef=0.3"], "both are 'hparams.clip_coef'"),
    ],
)
def test_what_is_refused(words: list[str], message: str, capsys: Captured) -> None:
    assert main(["sweep", *words]) == 2
    assert message in capsys.readouterr().err
