"""Several seeds: separate processes, a limit, a table, and stop signals that reach each member once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_training.cli import parse_words
from rl_training.cli.commands import TRAIN
from rl_training.cli.group import Group, run_group
from rl_training.cli.run import member_words

Captured = pytest.CaptureFixture[str]
TINY = [
    "--algo=random",
    "--env-id=CartPole-v1",
    "--training.num-eval-episodes=1",
    "--logging.tensorboard=false",
    "--hparams.num-steps=16",
]


def words(seed: int) -> list[str]:
    """Members that end at once: seed 2 fails, the others show their help."""
    return ["--nosuch", "1"] if seed == 2 else ["--help"]


def test_one_failing_member_does_not_end_the_others(capsys: Captured) -> None:
    assert run_group([1, 2, 3], 3, words, as_json=False) == 1
    captured = capsys.readouterr()
    rows = [line.split()[:2] for line in captured.out.splitlines()[1:]]
    assert rows == [["1", "done"], ["2", "failed"], ["3", "done"]]
    assert "error: unknown flag '--nosuch'" in captured.err
    assert captured.err.splitlines()[-1] == "1 of 3 runs failed"


def test_the_result_as_json(capsys: Captured) -> None:
    assert run_group([2, 1], 2, words, as_json=True) == 1
    result = json.loads(capsys.readouterr().out)
    assert result == {"runs": [{"seed": 2, "exit_code": 2}, {"seed": 1, "exit_code": 0}], "exit_code": 1}


def test_at_most_jobs_at_a_time(tmp_path: Path) -> None:
    group = Group([1, 3, 4], 1, words, tmp_path)
    assert group.run() == 0
    assert [member.seed for member in group.finished] == [1, 3, 4]
    for earlier, later in zip(group.finished, group.finished[1:], strict=False):
        assert later.started >= earlier.started + earlier.seconds


def test_a_member_gets_the_whole_command_line_with_its_own_seed() -> None:
    line = "ppo/cartpole --algorithm.lr 1e-3 --seed 1,2 --jobs 2 --debug --init-from runs/a:5 --tags a,b --json"
    assert member_words(parse_words(TRAIN, line.split()), 2) == [
        "ppo/cartpole",
        "--hparams.learning_rate=1e-3",
        "--tags=a,b",
        "--init-from=runs/a:5",
        "--debug",
        "--seed=2",
        "--json",
    ]


def test_two_seeds_for_real(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rl_training", "train", *TINY, "--total-timesteps=64", "--seed=3..4", "--jobs=2"]
    result = subprocess.run([*command, "--json"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stderr
    runs = json.loads(result.stdout)["runs"]
    assert [(run["seed"], run["exit_code"], run["metrics"]["env_steps"]) for run in runs] == [(3, 0, 64), (4, 0, 64)]
    for run in runs:
        assert Path(run["run"]).parent == tmp_path / "runs"
        assert json.loads((Path(run["run"]) / "run.json").read_text())["status"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 75)])
def test_a_stop_signal_saves_every_running_member(number: signal.Signals, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rl_training", "train", *TINY, "--total-timesteps=1e9", "--seed=1,2,3", "--jobs=2"]
    group = subprocess.Popen([*command, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("runs/*/checkpoints/latest"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    group.send_signal(number)
    out, err = group.communicate(timeout=60)
    assert group.returncode == code, err
    runs = json.loads(out)["runs"]
    assert [(run["seed"], run["exit_code"]) for run in runs] == [(1, code), (2, code)]
    assert all(json.loads((Path(run["run"]) / "run.json").read_text())["status"] == "stopped" for run in runs)
