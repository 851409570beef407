"""Fifteen secrets, planted wherever a run could pick one up: none is on disk afterwards, and the run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_training.cli import main
from rl_training.runs.directory import RunDir

Captured = pytest.CaptureFixture[str]
KWARGS = {
    "password": "plant-config-01",
    "api_key": "plant-config-02",
    "nested": {"client_secret": "plant-config-03", "tokens": ["plant-config-04", "plant-config-05"]},
    "url": "https://me:plant-url-06@example.org/x",
    "mirror": "ftp://plant-url-07@example.org",
    "login": "plant-environ-08",
}
VARIABLES = {
    "HF_TOKEN": "plant-environ-08",
    "MY_SECRET": "plant-environ-09",
    "PGPASSWORD": "plant-environ-10",
    "SOME_API_KEY": "plant-environ-11",
}
NEEDED = {
    "ENV_KWARGS_PASSWORD": "plant-config-01",
    "ENV_KWARGS_API_KEY": "plant-config-02",
    "ENV_KWARGS_NESTED_CLIENT_SECRET": "plant-config-03",
    "ENV_KWARGS_NESTED_TOKENS_0": "plant-config-04",
    "ENV_KWARGS_NESTED_TOKENS_1": "plant-config-05",
    "ENV_KWARGS_URL_USERINFO": "me:plant-url-06",
    "ENV_KWARGS_MIRROR_USERINFO": "plant-url-07",
    "ENV_KWARGS_OTHER_TOKEN": "plant-argv-12",
    "NAME_USERINFO": "x:plant-argv-13",
}
ENVIRONMENT = f"""
import gymnasium

KWARGS = {KWARGS!r}


def Env(other_token, **kwargs):
    assert (kwargs, other_token) == (KWARGS, "plant-argv-12"), "a secret did not arrive"
    print("connected with", kwargs, other_token)
    return gymnasium.make("CartPole-v1")
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose uncommitted changes hold secrets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("client.py").write_text("rate = 1\n")
    Path("settings.yaml").write_text("rate: 1\n")
    for command in ("init -q", "add .", "-c user.name=A -c user.email=a@example.org commit -q -m x"):
        subprocess.run(["git", *command.split()], check=True)
    Path("client.py").write_text("rate = 1\napi_key = 'plant-diff-14'\n")
    Path("settings.yaml").write_text("rate: 1\npassword: plant-diff-15\n")
    Path("secret_env.py").write_text(ENVIRONMENT)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.filterwarnings("ignore:secrets are never written")
def test_nothing_secret_is_written_and_the_run_goes_on(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    config = {
        "algo": "random",
        "env_id": "secret_env:Env",
        "env": {"num_envs": 1, "kwargs": KWARGS},
        "tags": ["plant-environ-09"],
        "hparams": {"num_steps": 32},
        "training": {"total_timesteps": 64, "num_eval_episodes": 1},
        "logging": {"terminal": False},
    }
    Path("mine.yaml").write_text(f"# notes: token=plant-environ-10\n{json.dumps(config)}\n")
    words = ["--env.kwargs.other_token=plant-argv-12", "--name", "see https://x:plant-argv-13@example.org"]
    assert main(["train", "mine.yaml", *words]) == 0
    run = RunDir.open("latest")
    assert main(["tag", "latest", "plant-environ-11"]) == 0
    assert main(["archive", "latest"]) == 0
    files = [path for path in Path("runs").rglob("*") if path.is_file()]
    assert {"index.sqlite", "git.diff", "source.yaml", "resolved.yaml", "run.json"} <= {path.name for path in files}
    assert [path for path in files if b"plant-" in path.read_bytes()] == []
    assert run.info()["tags"] == ["${env:MY_SECRET}", "${env:SOME_API_KEY}"]
    capsys.readouterr()
    assert main(["resume", "latest", "--total-timesteps=128"]) == 2
    assert "these are not set: ENV_KWARGS_API_KEY" in capsys.readouterr().err
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)
    assert main(["resume", "latest", "--total-timesteps=128", "--json"]) == 0
    assert main(["verify", "latest", "--steps=64"]) == 0
    capsys.readouterr()
    for command in (["list", "--json"], ["show", "latest", "--json"], ["diff", "latest", "latest"]):
        assert main(command) == 0
        assert "plant-" not in capsys.readouterr().out
    assert [path for path in Path("runs").rglob("*") if path.is_file() and b"plant-" in path.read_bytes()] == []


FAILING = """
import gymnasium


class Env(gymnasium.Wrapper):
    def __init__(self, host, fails_at=10):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.host, self.steps, self.fails_at = host, 0, fails_at

    def step(self, action):
        self.steps += 1
        if self.steps == self.fails_at:
            raise OSError(f"no answer from {self.host}: password=plant-own-2")
        return super().step(action)
"""


def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """A config in mine.yaml that names a variable, whose own name tells nothing, and an environment that fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_env", raising=False)
    monkeypatch.setenv("DB_HOST", "plant-host-1.example.org")
    Path("failing_env.py").write_text(FAILING)
    config = {
        "algo": "random",
        "env_id": "failing_env:Env",
        "env": {"num_envs": 1, "kwargs": {"host": "${env:DB_HOST}"}},
        "hparams": {"num_steps": 32},
        "training": {"total_timesteps": 64, "num_eval_episodes": 0},
    }
    Path("mine.yaml").write_text(json.dumps(config | changes))


@pytest.mark.parametrize("seeds", ["1", "1,2"])
@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_no_secret_of_an_error_is_shown_or_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured, seeds: str, vectorization: str
) -> None:
    """A reference with an ordinary name, and what the environment itself calls a password."""
    failing(tmp_path, monkeypatch)
    words = ["train", "mine.yaml", "--seed", seeds, "--env.vectorization", vectorization, "--jobs=2"]
    assert main(words if seeds == "1,2" else [*words[:-1], "--traceback"]) == 1
    shown = "".join(capfd.readouterr())
    assert "no answer from ${env:DB_HOST}: password=${env:PASSWORD}" in shown
    assert "plant-" not in shown.replace('plant-own-2")', "")  # the line of code is shown as it is
    files = [path for path in Path("runs").rglob("*") if path.is_file()]
    assert [path for path in files if b"plant-host" in path.read_bytes()] == []
    for run in Path("runs").glob("random__*"):
        assert "${env:DB_HOST}" in (run / "configs" / "resolved.yaml").read_text()
        for log in ("train.log", "alerts.jsonl"):
            assert "no answer from ${env:DB_HOST}: password=${env:PASSWORD}" in (run / "logs" / log).read_text()


def test_an_environment_that_cannot_be_built_tells_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """There is no run directory yet, and the password stands in the config itself."""
    kwargs = {"host": "${env:DB_HOST}", "password": "plant-literal-3"}
    failing(tmp_path, monkeypatch, env={"num_envs": 1, "kwargs": kwargs})
    with open("failing_env.py", "a") as file:
        file.write("\n\ndef Env(host, password):\n    raise OSError(f'{password} is wrong at {host}')\n")
    for words in (["train", "mine.yaml"], ["--traceback", "train", "mine.yaml"], ["train", "mine.yaml", "--dry-run"]):
        assert main(words) == 1
        shown = "".join(capsys.readouterr())
        assert "${env:ENV_KWARGS_PASSWORD} is wrong at ${env:DB_HOST}" in shown
        assert "plant-" not in shown
    assert not Path("runs").exists()


def test_a_reference_stays_one_wherever_a_config_is_shown_or_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    debug = {"debug": {"enabled": True, "capture_update": 1}, "command": ["true", "${env:DB_HOST}"]}
    kwargs = {"host": "${env:DB_HOST}", "fails_at": 0}
    where = {"output_dir": "${env:WHERE}/runs", "name": "on ${env:DB_HOST}", "tags": ["${env:DB_HOST}"]}
    failing(tmp_path, monkeypatch, algo="ppo", env={"num_envs": 1, "kwargs": kwargs}, monitor=debug, **where)
    monkeypatch.setenv("WHERE", str(tmp_path / "elsewhere"))
    assert main(["train", "mine.yaml", "--dry-run"]) == 0
    assert main(["train", "mine.yaml"]) == 0
    (run,) = (tmp_path / "elsewhere" / "runs").glob("ppo__*")
    assert main(["resume", str(run), "--total-timesteps", "96"]) == 0
    Path("sweep.yaml").write_text("base_config: mine.yaml\nsweep:\n  hparams.num_steps: [16, 32]\n")
    assert main(["sweep", "sweep.yaml"]) == 0
    for words in (["show", str(run)], ["show", str(run), "--json"], ["list", "--output-dir", str(run.parent)]):
        assert main(words) == 0
    captured = capsys.readouterr()
    assert "plant-host" not in captured.out + captured.err
    files = [path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()]
    assert any(path.suffix == ".capture" for path in files)
    assert [path for path in files if b"plant-host" in path.read_bytes()] == []
    for path in files:
        if path.name in ("resolved.yaml", "trial_000.yaml"):
            assert "output_dir: ${env:WHERE}/runs" in path.read_text().replace('"', "").replace("'", "")
