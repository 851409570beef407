"""A file for another command and an empty file are refused, in one sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.cli import main
from rl_training.config.loading import load_config
from rl_training.config.searches.sweeps import load_sweep
from rl_training.config.searches.tuning import load_tune
from rl_training.types import ConfigError

Captured = pytest.CaptureFixture[str]
FILES = {
    "train.yaml": "algo: ppo\nenv_id: CartPole-v1\n",
    "nested.yaml": "experiment: {name: x}\nalgorithm: {name: ppo}\n",
    "dotted.yaml": "hparams.clip_coef: 0.1\n",
    "sweep.yaml": "base_config: ppo/cartpole\nsweep: {hparams.clip_coef: [0.1, 0.2]}\n",
    "list.yaml": "base_config: ppo/cartpole\ntrials: [{hparams.clip_coef: 0.1}]\n",
    "tune.yaml": "base_config: ppo/cartpole\nsampler: random\n",
}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("train sweep.yaml", "rl sweep sweep.yaml"),
        ("train list.yaml", "rl sweep list.yaml"),
        ("train tune.yaml", "rl tune tune.yaml"),
        ("config show tune.yaml", "rl tune tune.yaml"),
        ("sweep train.yaml", "rl train train.yaml"),
        ("sweep nested.yaml", "rl train nested.yaml"),
        ("sweep dotted.yaml", "rl train dotted.yaml"),
        ("sweep ppo/cartpole", "rl train ppo/cartpole"),
        ("sweep tune.yaml", "rl tune tune.yaml"),
        ("tune train.yaml", "rl train train.yaml"),
        ("tune ppo/cartpole", "rl train ppo/cartpole"),
        ("tune list.yaml", "rl sweep list.yaml"),
    ],
)
def test_the_right_command_is_named(line: str, right: str, capsys: Captured) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert f"'{right}' runs it" in captured.err


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", "---\n", "null\n", "~", "{}\n", "\n\n", "---\n...\n", "\ufeff"]
)
def test_an_empty_file_is_refused(text: str, capsys: Captured) -> None:
    Path("empty.yaml").write_text(text)
    for load in (load_config, load_sweep, load_tune):
        with pytest.raises(ConfigError, match=r"empty\.yaml is empty"):
            load("empty.yaml")
    Path("based.yaml").write_text("base: empty.yaml\nalgo: ppo\n")
    for words in (["train", "empty.yaml", "--dry-run"], ["config", "validate", "empty.yaml"], ["train", "based.yaml"]):
        assert main(words) == 2
        assert "empty.yaml is empty; 'rl config show ppo/cartpole' prints a whole config" in capsys.readouterr().err


def test_an_empty_mapping_in_python_is_all_defaults() -> None:
    from rl_training.config.loading import parse_config

    assert parse_config({}).algo == "ppo"


def test_lists_of_a_sweep_may_be_tuned() -> None:
    assert load_tune("sweep.yaml").sweep["hparams.clip_coef"] == load_sweep("sweep.yaml").sweep["hparams.clip_coef"]
