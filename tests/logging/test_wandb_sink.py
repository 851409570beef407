"""The real W&B package, offline: a stable id, no output, files inside the run, no secrets, no effect on the run."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_training.config.schema import EnvConfig, TrainConfig, WandbConfig
from rl_training.logging.wandb_sink import WandbSink, has_key
from rl_training.runs.directory import RunDir
from rl_training.types import ConfigError

PROGRAM = """
import sys, warnings
from pathlib import Path
warnings.simplefilter("always", UserWarning)
from rl_training.config.schema import WandbConfig
from rl_training.runs.directory import RunDir
from rl_training.logging.wandb_sink import WandbSink
sink = WandbSink(WandbConfig(enabled=True, tags=("a",)), RunDir.open(sys.argv[1]))
for step in (10, 20):
    sink.log_eval({"env_steps": step, "return_mean": 1.5, "returns": [1.0, 2.0]})
    sink.log({"env_steps": step, "train/loss": 0.5, "note": "text"})
print(sink._run.id)
sink.close()
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PLANTED_TOKEN", "plant-in-config")
    cfg = TrainConfig(output_dir=str(tmp_path / "runs"), env=EnvConfig(kwargs={"token": "plant-in-config"}))
    return RunDir.create(cfg)


def test_offline_without_a_key(run: RunDir, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(run.path), "--password", "plant-in-argv"]
    for _ in range(2):  # the second time is the resume
        result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        assert result.stdout == f"{run.tracking_id()}\n"
        assert result.stderr.count("UserWarning") == 1
        assert "UserWarning: no W&B key found: it logs offline" in result.stderr
    files = [path for path in (run.logs / "wandb").rglob("*") if path.is_file()]
    recorded = [path for path in files if path.suffix == ".wandb"]
    assert len(recorded) == 2
    assert all(f"-{run.tracking_id()}.wandb" in path.name for path in recorded)
    assert all(name in recorded[0].read_bytes() for name in (b"train/loss", b"eval/return_mean", b"CartPole-v1"))
    assert [path for path in files if b"plant-in-" in path.read_bytes()] == []
    assert not (tmp_path / "wandb").exists()


class FailingRun:
    """A W&B run that has lost its connection."""

    def log(self, *arguments: Any, **keywords: Any) -> None:
        raise ConnectionError("connection lost")

    finish = log


def test_a_failing_wandb_warns_once_and_does_not_end_the_run(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(wandb, "init", lambda **keywords: FailingRun())
    sink = WandbSink(WandbConfig(enabled=True), run)
    with pytest.warns(UserWarning, match=r"W&B failed and is off .* ConnectionError: connection lost"):
        sink.log({"env_steps": 1, "train/loss": 0.5})
    sink.log({"env_steps": 2, "train/loss": 0.5})
    sink.close()


def test_a_wandb_that_cannot_start_warns_once(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.warns(UserWarning, match="W&B failed and is off"):
        sink = WandbSink(replace(WandbConfig(enabled=True), project="a/b:c"), run)
    sink.log({"env_steps": 1})
    sink.close()


def test_a_missing_wandb_names_the_extra(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_wandb(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name == "wandb":
            raise ImportError("No module named 'wandb'")
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_wandb)
    with pytest.raises(ConfigError, match=r"pip install 'rl-training\[tracking\]'"):
        WandbSink(WandbConfig(enabled=True), run)


@pytest.mark.usefixtures("run")
def test_where_a_key_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_key()
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password not-a-real-key\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert has_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert not has_key()
    monkeypatch.setenv("WANDB_API_KEY", "not-a-real-key")
    assert has_key()
