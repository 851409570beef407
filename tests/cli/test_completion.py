"""Completion as a real bash does it, and what `rl _complete` answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rl_training.cli import main
from rl_training.cli.commands import COMMANDS
from rl_training.cli.completion import SCRIPTS
from rl_training.config.loading import preset_names
from rl_training.registry import algorithms

Captured = pytest.CaptureFixture[str]


def candidates(capsys: Captured, *words: str) -> list[str]:
    assert main(["_complete", *words]) == 0
    return capsys.readouterr().out.split()


@pytest.fixture
def two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    names = ["ppo__A-v1__seed0__20260101-000000", "a2c__A-v1__seed0__20260102-000000"]
    for name in names:
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    (tmp_path / "runs" / "groups").mkdir()
    return names


def test_commands(capsys: Captured) -> None:
    assert candidates(capsys, "") == list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    assert candidates(capsys, "re") == ["resume", "record"]
    assert candidates(capsys, "config", "") == ["show", "validate", "migrate", "import-zoo"]
    assert candidates(capsys, "--") == ["--help", "--version"]
    assert candidates(capsys) == candidates(capsys, "")


def test_presets_and_runs(capsys: Captured, two_runs: list[str]) -> None:
    assert candidates(capsys, "train", "") == preset_names()
    assert candidates(capsys, "train", "ppo/cart") == ["ppo/cartpole", "ppo/cartpole_no_velocity"]
    assert candidates(capsys, "eval", "") == ["latest", *two_runs]
    assert candidates(capsys, "train", "--resume", "a2c") == [two_runs[1]]


def test_flags_and_their_values(capsys: Captured) -> None:
    assert candidates(capsys, "train", "--total") == ["--total-timesteps", "--total-updates"]
    assert candidates(capsys, "train", "ppo/cartpole", "--hparams.clip") == ["--hparams.clip-coef", "--hparams.clip-vf"]
    assert candidates(capsys, "train", "--algo", "a2c", "--hparams.clip") == []
    assert candidates(capsys, "train", "--algo", "") == algorithms.names()
    assert candidates(capsys, "train", "--algo", "=", "pp") == ["ppo"]
    assert candidates(capsys, "train", "--lane", "") == ["auto", "host", "compiled"]
    assert candidates(capsys, "train", "--env.vectorization", "a") == ["async"]
    assert candidates(capsys, "train", "--env.normalize_obs", "") == ["true", "false"]
    assert candidates(capsys, "train", "--debug", "ppo/acr") == ["ppo/acrobot"]
    assert candidates(capsys, "train", "--output-dir", "") == []
    assert candidates(capsys, "eval", "latest", "--checkpoint", "") == ["latest", "best"]
    assert candidates(capsys, "config", "show", "--back") == ["--backend"]


def test_nonsense_has_no_candidates(capsys: Captured) -> None:
    assert candidates(capsys, "nosuch", "") == []
    assert candidates(capsys, "train", "--nosuch", "") == []


def test_every_shell_has_a_script_that_names_the_command(capsys: Captured) -> None:
    for shell, script in SCRIPTS.items():
        assert main(["completion", shell]) == 0
        assert capsys.readouterr().out == script
        assert "_complete" in script


def test_in_a_real_bash(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("rl")
    lines = [
        f"source <({command} completion bash)",
        "complete -p rl",
        'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _rl_complete; echo "${COMPREPLY[@]}"; }',
        f"try {command} res",
        f'try {command} config ""',
        f"try {command} train --total-",
        f"try {command} train --device = ''",
    ]
    result = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "complete -o default -F _rl_complete rl",
        "resume",
        "show validate migrate import-zoo",
        "--total-timesteps --total-updates",
        "",
    ]
