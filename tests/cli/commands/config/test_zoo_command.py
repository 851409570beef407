"""`rl config import-zoo`: printed, written to a file or a folder, never over something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.cli import main
from rl_training.config.loading import load_config, read_yaml

FILE = "CartPole-v1: {n_envs: 2, callback: mine}\nALE/Pong-v5: {n_timesteps: !!float 1e6}\n"


@pytest.fixture(autouse=True)
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ppo.yml").write_text(FILE)


def test_one_environment_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "import-zoo", "ppo.yml", "--env", "CartPole-v1"]) == 0
    captured = capsys.readouterr()
    assert read_yaml(captured.out)["env"] == {"num_envs": 2}
    assert "CartPole-v1: dropped callback: name callbacks of your own" in captured.err


def test_a_folder_gets_one_file_each_and_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["config", "import-zoo", "ppo.yml", "--output", "mine/zoo"]
    assert main(words) == 0
    files = sorted(Path("mine/zoo").iterdir())
    assert [file.name for file in files] == ["ppo_ALE-Pong-v5.yaml", "ppo_CartPole-v1.yaml"]
    assert load_config(files[0]).env_id == "ALE/Pong-v5"
    assert main(words) == 2
    assert "exists and is not overwritten" in capsys.readouterr().err
    assert main(["config", "validate", *map(str, files)]) == 0


def test_a_file_holds_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "import-zoo", "ppo.yml", "--env", "CartPole-v1", "--output", "one.yaml"]) == 0
    assert load_config("one.yaml").env.num_envs == 2
    assert main(["config", "import-zoo", "ppo.yml", "--output", "two.yaml"]) == 2
    assert "several configs do not fit into one file" in capsys.readouterr().err
    assert main(["config", "import-zoo", "ppo.yml"]) == 2
    assert "name one with --env, or a folder with --output" in capsys.readouterr().err
    assert not Path("two.yaml").exists()


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "import-zoo", "ppo.yml", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["env_id"] for record in records] == ["CartPole-v1", "ALE/Pong-v5"]
    assert list(records[0]["dropped"]) == ["callback"]


def test_what_cannot_be_imported_is_said_and_the_rest_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sac.yml").write_text("Pendulum-v1: {}\nBad-v0: {gamma: 7}\n")
    assert main(["config", "import-zoo", "sac.yml", "--output", "out"]) == 2
    assert "Bad-v0: 'hparams.gamma' must be between 0 and 1" in capsys.readouterr().err
    assert [file.name for file in Path("out").iterdir()] == ["sac_Pendulum-v1.yaml"]
    assert main(["config", "import-zoo", "nowhere.yml", "--algo", "ppo"]) == 2
