"""Several seeds on the command line: real members killed and resumed, and every command on a group that is trained."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.cli import main
from rl_training.cli.commands.runs.train import COMMAND as TRAIN
from rl_training.cli.config_options import resolved_config
from rl_training.cli.dispatch import parse_words
from rl_training.experiments.analysis.group_summary import aggregate
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.runs.directory import metrics_sha256

Captured = pytest.CaptureFixture[str]
FLAGS = [
    "--algo=ppo",
    "--num-envs=2",
    "--hparams.num-steps=32",
    "--training.num-eval-episodes=2",
    "--training.eval-frequency=256",
    "--training.checkpoint-frequency=256",
    "--logging.tensorboard=false",
]
SECRET = "hunter2-very-secret"
ENVIRONMENT = '''
"""Walk to the right end. Prints its secret, as careless code does."""
import gymnasium as gym
import numpy as np


class Walk(gym.Env):
    observation_space = gym.spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, api_key=""):
        print("connecting with", api_key, flush=True)
        assert not api_key or api_key == "hunter2-very-secret", "the secret did not arrive"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.integers(-2, 3)), 0
        return self._obs(), {}

    def step(self, action):
        self.place += 1.0 if action == 1 else -1.0
        self.steps += 1
        ended = abs(self.place) >= 5.0
        return self._obs(), self.place / 5.0, ended, self.steps >= 20, {}

    def _obs(self):
        return np.array([self.place], np.float32)
'''


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walk.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(tmp_path)


def start(words: list[str], **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rl_training", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )


def wait_for(what: str, count: int = 1) -> list[Path]:
    deadline = time.monotonic() + 120
    while len(found := list(Path().glob(what))) < count:
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.05)
    return found


def members_of(group: SeedGroup) -> Iterator[tuple[int, dict[str, Any]]]:
    for member in group.members:
        run = group.output_dir / str(member.run)
        yield member.seed, json.loads((run / "run.json").read_text())


def test_a_group_survives_kill_9_of_a_member_and_of_the_parent(capsys: Captured) -> None:
    """Resumed, it ends with the numbers of two runs that were never in a group and never stopped."""
    config = Path("my.yaml")
    settings = {"env_id": "walk:Walk", "training": {"total_timesteps": 1024}, "env": {"kwargs": {"api_key": SECRET}}}
    config.write_text(f"# my notes\n{json.dumps(settings)}\n")
    parent = start(["train", str(config), *FLAGS, "--seed=1,2", "--jobs=1", "--name=mine"])
    wait_for("runs/*/checkpoints/latest")
    config.write_text("algo: nonsense\n")  # members that wait are not reached by it
    members = SeedGroup.open(wait_for("runs/groups/*/group.json")[0].parent).members
    assert members[0].process is not None
    os.kill(members[0].process.pid, signal.SIGKILL)
    parent.kill()
    parent.communicate()
    resumed = start(["resume", "mine", "--jobs=2", "--json"], ENV_KWARGS_API_KEY=SECRET)
    out, err = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, err
    result = json.loads(out)
    assert not any(member.process.is_alive() for member in members if member.process is not None)
    group = SeedGroup.open("mine")
    assert [run["status"] for run in result["runs"]] == ["finished"] * 2
    assert all(info["group"] == group.info.id and info["status"] == "finished" for _, info in members_of(group))
    assert [info["config_sha256"] for _, info in members_of(group)] == [m.config_sha256 for m in group.members]
    assert (group.output_dir / str(group.members[1].run) / "configs" / "source.yaml").read_text().startswith("# my")
    assert [path for path in Path("runs").rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []
    scores = []
    for member in group.members:
        cfg = replace(group.config(), seed=member.seed, output_dir="alone", env=replace(group.config().env, kwargs={}))
        alone = rl_training.train(cfg)
        capsys.readouterr()
        scores.append(alone.metrics["eval/return_mean"])
        log = group.output_dir / str(member.run) / "logs" / "metrics.jsonl"
        assert metrics_sha256(log) == metrics_sha256(alone.run_dir / "logs" / "metrics.jsonl")
    assert result["summary"]["return"] == aggregate(scores)
    assert json.loads((group.path / "summary.json").read_text()) == result["summary"]


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output directory with a group: three seeds, trained in this process, and a fourth that nobody has started."""
    folder = tmp_path_factory.mktemp("trained")
    words = [*FLAGS, "--env-id=CartPole-v1", "--name=four", "--logging.terminal=false", "--total-timesteps=128"]
    with contextlib.chdir(folder):
        group = SeedGroup.create(resolved_config(parse_words(TRAIN, words)), [1, 2, 3, 4])
        for seed in (1, 2, 3):
            rl_training.train(replace(group.config(), seed=seed), group=group.info.id)
        group.observe()
        group.save()
    return folder / "runs"


@pytest.fixture
def trained(trained_once: Path) -> SeedGroup:
    """A copy of it, as `runs` here."""
    shutil.copytree(trained_once, "runs")
    return SeedGroup.open("four")


def test_evaluating_a_group(trained: SeedGroup, capsys: Captured) -> None:
    assert main(["eval", "four", "--episodes=3", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert "seed 4: no run yet" in captured.err
    assert [(run["train_seed"], run["episodes"], len(run["returns"])) for run in result["runs"]] == [
        (1, 3, 3),
        (2, 3, 3),
        (3, 3, 3),
    ]
    for run in result["runs"]:
        assert main(["eval", run["run"], "--episodes=3", "--json"]) == 0
        assert run.items() >= json.loads(capsys.readouterr().out).items()
    assert result["return"] == aggregate([run["return_mean"] for run in result["runs"]])
    assert main(["eval", str(trained.path), "--episodes=2", "--checkpoint=best"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["seed", "1", "2", "3"]
    assert lines[5] == "checkpoint best; 2 greedy episodes each"
    assert lines[6].startswith("IQM ")
    assert lines[6].endswith(" over 3 seeds")


def test_a_member_that_cannot_be_evaluated_does_not_hide_the_others(trained: SeedGroup, capsys: Captured) -> None:
    assert main(["eval", "four", "--episodes=1", "--checkpoint=77", "--json"]) == 1
    assert all("no checkpoint" in run["error"] for run in json.loads(capsys.readouterr().out)["runs"])
    for member in trained.members[:2]:
        latest = trained.output_dir / str(member.run) / "checkpoints"
        latest.rename(latest.with_name("gone"))
    assert main(["eval", "four", "--episodes=1"]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1].endswith(" over 1 seed")
    assert "seed 2: " in captured.err


def test_a_finished_group_says_so(trained: SeedGroup, capsys: Captured) -> None:
    trained.members.pop()
    trained.save()
    assert main(["resume", "four"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "nothing to do: all 3 seeds are finished\n"
    table, _, rest = captured.out.partition("\n\n")
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [[str(seed), "finished"] for seed in (1, 2, 3)]
    facts = dict(line.split(maxsplit=1) for line in rest.splitlines() if line.startswith("  ") and line[2] != " ")
    assert facts["return"].startswith("IQM ")
    assert facts["return"].endswith("over 3 seeds (last evaluation)")
    assert facts["group"] == str(trained.path.relative_to(Path.cwd()) if trained.path.is_absolute() else trained.path)
    assert facts["next"] == f"rl eval {facts['group']}"
    assert Path(facts["plot"]).is_file()


def test_a_missing_matplotlib_costs_the_plot_alone(
    trained: SeedGroup, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained.members.pop()
    trained.save()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["resume", "four", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["plots"] == []
    assert "no plot: plots need an extra: pip install 'rl-training[analysis]'" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resume", "four", "--total-timesteps=500"], r"is not finished \(seeds 4\)"),
        (["eval", "nosuch"], "no run 'nosuch' in 'runs'"),
        (["resume", "latest", "--jobs=2"], "--jobs is for a group of seeds; this is one run"),
    ],
)
def test_what_a_group_refuses(words: list[str], message: str, trained: SeedGroup, capsys: Captured) -> None:
    assert main(words) in (1, 2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(message, captured.err)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 75)])
def test_a_stop_signal_saves_every_running_member(number: signal.Signals, code: int) -> None:
    words = [*FLAGS, "--env-id=CartPole-v1", "--total-timesteps=1e9", "--seed=1,2,3", "--jobs=2", "--json"]
    parent = start(["train", *words])
    wait_for("runs/*/checkpoints/latest", 2)
    parent.send_signal(number)
    out, err = parent.communicate(timeout=60)
    assert parent.returncode == code, err
    assert f"{number.name}: stopping 2 running members, which save first" in err
    result = json.loads(out)
    assert [(run["seed"], run["status"], run["exit_code"]) for run in result["runs"]] == [
        (1, "stopped", code),
        (2, "stopped", code),
        (3, "waiting", None),
    ]
    assert result["summary"]["return"] is None
