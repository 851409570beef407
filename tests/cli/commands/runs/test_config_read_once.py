"""`rl train` reads, resolves and checks a config once, and passes the record on: one run, debug, seeds, sweeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.cli import main
from rl_training.config import resolution, yaml_reader
from rl_training.config.loading import read_yaml
from rl_training.experiments.launching.group_runner import GroupRunner

Captured = pytest.CaptureFixture[str]
TEXT = """\
algo: ppo  # mine
env_id: CartPole-v1
env: {num_envs: 2}
hparams: {num_steps: 16, num_epochs: 1}
training: {total_timesteps: 32, num_eval_episodes: 1}
logging: {tensorboard: false, terminal: false}
"""


class Calls:
    """How often files were read and configs resolved."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.resolved = 0


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(TEXT)
    counted = Calls()
    read_text, resolve = yaml_reader.read_text, resolution.resolve

    def counted_read(path: Path, source: str) -> str:
        counted.read.append(Path(source).name)
        return read_text(path, source)

    def counted_resolve(*arguments: object) -> object:
        counted.resolved += 1
        return resolve(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(yaml_reader, "read_text", counted_read)
    monkeypatch.setattr(resolution, "resolve", counted_resolve)
    return counted


def test_one_run(calls: Calls, capsys: Captured) -> None:
    assert main(["train", "mine.yaml", "--seed", "3", "--json"]) == 0
    run = Path(json.loads(capsys.readouterr().out)["run"])
    assert (calls.read.count("mine.yaml"), calls.resolved) == (1, 1)
    assert set(calls.read) == {"mine.yaml", "resolved.yaml"}, "the index of runs reads the stored config"
    assert (run / "configs" / "source.yaml").read_text() == TEXT
    assert read_yaml(run / "configs" / "resolved.yaml")["seed"] == 3


def test_a_debug_run_changes_the_record_without_reading_the_file_again(calls: Calls) -> None:
    assert main(["train", "mine.yaml", "--debug", "--dry-run"]) == 0
    assert (calls.read, calls.resolved) == (["mine.yaml"], 2)


def test_a_dry_run(calls: Calls) -> None:
    assert main(["train", "mine.yaml", "--dry-run", "--json"]) == 0
    assert (calls.read, calls.resolved) == (["mine.yaml"], 1)


def test_a_group_of_seeds(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is resolved once, and the config that was frozen for the members once."""
    monkeypatch.setattr(GroupRunner, "run", lambda runner: 0)
    assert main(["train", "mine.yaml", "--seed", "1,2,3"]) == 0
    assert (calls.read.count("mine.yaml"), calls.resolved) == (1, 2)
    (source,) = Path("runs/groups").glob("*/configs/source.yaml")
    assert source.read_text() == TEXT


def test_the_base_of_a_sweep_is_read_twice_however_many_trials_there_are(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once to check its values, once for the trials, and once as the sweep keeps it; the sweep file itself once."""
    monkeypatch.setattr(GroupRunner, "run", lambda runner: 0)
    Path("sweep.yaml").write_text("base_config: mine.yaml\nsweep:\n  hparams.gamma: [0.5, 0.6, 0.7, 0.8]\n")
    assert main(["sweep", "sweep.yaml"]) == 0
    assert [name for name in calls.read if not name.startswith("trial_")] == [
        *("sweep.yaml", "mine.yaml", "mine.yaml", "base.yaml")
    ]


@pytest.mark.parametrize("name", ["latest", "Latest-Group", "groups", "sweeps", "archives", "best", "index.sqlite"])
def test_reserved_names_are_refused(name: str, calls: Calls, capsys: Captured) -> None:
    assert main(["train", "mine.yaml", "--name", name]) == 2
    message = capsys.readouterr().err
    assert " ".join(message.split()) == (
        f"error: a run cannot be named '{name}': archives, best, groups, index.sqlite, latest, latest-group, "
        "latest-sweep, sweeps are reserved; choose another name"
    )
    assert not Path("runs").exists()


@pytest.mark.parametrize("words", [["--seed", "1,2"], ["--dry-run"]])
def test_reserved_names_of_groups_and_plans(words: list[str], calls: Calls, capsys: Captured) -> None:
    assert main(["train", "mine.yaml", "--name=latest", *words]) == 2
    assert "a run cannot be named 'latest'" in capsys.readouterr().err


def test_reserved_names_of_sweeps(calls: Calls, capsys: Captured) -> None:
    Path("sweep.yaml").write_text("base_config: mine.yaml\nsweep:\n  hparams.gamma: [0.5, 0.6]\n")
    for words in ([], ["--dry-run"]):
        assert main(["sweep", "sweep.yaml", "--name=latest", *words]) == 2
        assert "a run cannot be named 'latest'" in capsys.readouterr().err
    assert not Path("runs").exists()
