"""Old files load as what they meant, step by step; newer ones are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.config import CONFIG_VERSION, TrainConfig
from rl_training.config_loading import load_config, migrate_file, parse_config, read_yaml
from rl_training.migrations import STEPS, migrate
from rl_training.types import ConfigError

VERSION_0 = """\
# My first experiment.
# It solved CartPole.

version: 0
algo: ppo
env_id: CartPole-v1
num_envs: 8
total_timesteps: 50000
eval_frequency: 5000
hparams:
  n_steps: 64  # short
  n_epochs: 10
  clip_range: 0.1
  learning_rate: 1e-3
training:
  num_eval_episodes: 5
"""


def test_there_is_a_step_for_every_old_version() -> None:
    assert len(STEPS) == CONFIG_VERSION


def test_version_0_means_what_it_meant(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(VERSION_0)
    cfg = load_config(path)
    assert cfg == parse_config(
        {
            "env": {"num_envs": 8},
            "training": {"total_timesteps": 50_000, "eval_frequency": 5000, "num_eval_episodes": 5},
            "hparams": {"num_steps": 64, "num_epochs": 10, "clip_coef": 0.1, "learning_rate": 1e-3},
        }
    )
    assert cfg.version == CONFIG_VERSION


def test_the_file_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(VERSION_0)
    text = migrate_file(path)
    assert text.startswith("# My first experiment.\n# It solved CartPole.\n\nversion: 1\nalgo: ppo\n")
    assert path.read_text() == VERSION_0
    before = load_config(path)
    path.write_text(text)
    assert load_config(path) == before
    assert migrate_file(path) == text, "a file of today is left as it is"


def test_json_stays_json(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"version": 0, "num_envs": 2}')
    assert json.loads(migrate_file(path)) == {"version": 1, "env": {"num_envs": 2}}


def test_without_a_version_the_newest_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "today.yaml"
    path.write_text("seed: 1  # a comment\n")
    assert migrate_file(path) == "seed: 1  # a comment\n"
    with pytest.raises(ConfigError, match=r"unknown key 'hparams\.n_steps'; did you mean 'num_steps'"):
        parse_config({"hparams": {"n_steps": 1}})


def test_each_file_of_a_chain_has_its_own_version(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text("version: 0\nnum_envs: 2\nhparams: {n_steps: 16}\n")
    (tmp_path / "new.yaml").write_text("version: 1\nbase: old.yaml\nhparams: {num_epochs: 2}\n")
    cfg = load_config(tmp_path / "new.yaml")
    assert (cfg.env.num_envs, cfg.hparams.num_steps, cfg.hparams.num_epochs) == (2, 16, 2)


def test_names_of_an_own_algorithm_are_not_renamed() -> None:
    tree = {"version": 0, "algo": "m:A", "hparams": {"n_steps": 3}}
    assert parse_config(tree).hparams == {"n_steps": 3}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"version": 2}, "f: version 2 is newer than this rl_training, which reads up to 1; upgrade with: pip install"),
        ({"version": -1}, "f: 'version' must be a whole number from 0 to 1, not -1"),
        ({"version": "1"}, "f: 'version' must be a whole number"),
        ({"version": True}, "f: 'version' must be a whole number"),
        ({"version": 0, "num_envs": 1, "env": {"num_envs": 2}}, "f: 'num_envs' and 'env.num_envs' are the same"),
        ({"version": 0, "hparams": {"n_steps": 1, "num_steps": 1}}, "f: 'hparams.n_steps' and 'hparams.num_steps'"),
        ({"version": 0, "num_envs": 1, "env": 3}, "f: 'env' must be a mapping, not 3"),
    ],
)
def test_what_cannot_be_migrated(tree: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        migrate(tree, "f")
    assert message in str(caught.value)


def test_migrating_does_not_touch_its_input() -> None:
    tree = {"version": 0, "num_envs": 1, "env": {"frame_stack": 2}, "hparams": {"n_steps": 4}}
    migrate(tree, "f")
    assert tree == {"version": 0, "num_envs": 1, "env": {"frame_stack": 2}, "hparams": {"n_steps": 4}}


def test_the_current_version_is_written() -> None:
    assert read_yaml("version: 1") == {"version": TrainConfig().version}
