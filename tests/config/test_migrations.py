"""Old files load as what they meant, step by step; newer ones are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.config.loading import load_config, migrate_file, parse_config, read_yaml
from rl_training.config.migrations import STEPS, migrate
from rl_training.config.schema import CONFIG_VERSION, TrainConfig, TrainingConfig
from rl_training.runs.directory import RunDir
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
            "training": {
                "total_timesteps": 50_000,
                "eval_frequency": 5000,
                "num_eval_episodes": 5,
                "eval_at_start": False,
            },
            "hparams": {"num_steps": 64, "num_epochs": 10, "clip_coef": 0.1, "learning_rate": 1e-3},
        }
    )
    assert cfg.version == CONFIG_VERSION


def test_the_file_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(VERSION_0)
    text = migrate_file(path)
    assert text.startswith("# My first experiment.\n# It solved CartPole.\n\nversion: 2\nalgo: ppo\n")
    assert path.read_text() == VERSION_0
    before = load_config(path)
    path.write_text(text)
    assert load_config(path) == before
    assert migrate_file(path) == text, "a file of today is left as it is"


def test_json_stays_json(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"version": 0, "num_envs": 2}')
    training = {"eval_at_start": False, "eval_frequency": 10_000}
    assert json.loads(migrate_file(path)) == {"version": 2, "env": {"num_envs": 2}, "training": training}


def test_without_a_version_the_newest_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "today.yaml"
    path.write_text("seed: 1  # a comment\n")
    assert migrate_file(path) == "seed: 1  # a comment\n"
    with pytest.raises(ConfigError, match=r"unknown key 'hparams\.n_steps'; did you mean 'num_steps'"):
        parse_config({"hparams": {"n_steps": 1}})


def test_each_file_of_a_chain_has_its_own_version(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text("version: 0\nnum_envs: 2\nhparams: {n_steps: 16}\n")
    (tmp_path / "new.yaml").write_text("version: 2\nbase: old.yaml\nhparams: {num_epochs: 2}\n")
    cfg = load_config(tmp_path / "new.yaml")
    assert (cfg.env.num_envs, cfg.hparams.num_steps, cfg.hparams.num_epochs) == (2, 16, 2)


def test_names_of_an_own_algorithm_are_not_renamed() -> None:
    tree = {"version": 0, "algo": "m:A", "hparams": {"n_steps": 3}}
    assert parse_config(tree).hparams == {"n_steps": 3}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"version": 3}, "f: version 3 is newer than this rl_training, which reads up to 2; upgrade with: pip install"),
        ({"version": -1}, "f: 'version' must be a whole number from 0 to 2, not -1"),
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
    assert read_yaml("version: 2") == {"version": TrainConfig().version}


# -- version 1: evaluations every 10,000 env steps, none at the start -------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({}, 10_000),
        ({"training": None}, 10_000),
        ({"training": {"total_timesteps": 500}}, 10_000),
        ({"training": {"eval_frequency": 70}}, 70),
        ({"training": {"eval-frequency": 70}}, 70),
        ({"training.eval_frequency": 70}, 70),
        ({"experiment": {"training": {"eval_frequency": 70}}}, 70),
        ({"experiment": {"seed": 3}, "environment": {"name": "CartPole-v1"}}, 10_000),
    ],
)
def test_version_1_evaluates_as_it_did(tree: dict[str, object], expected: int) -> None:
    training = parse_config({"version": 1, **tree}).training
    assert (training.eval_at_start, training.eval_frequency, training.eval_steps) == (False, expected, expected)
    today = parse_config(tree).training
    assert today.eval_at_start
    assert today.eval_frequency == ("auto" if expected == 10_000 else expected)


def test_a_section_of_version_1_that_is_wrong_is_still_reported() -> None:
    with pytest.raises(ConfigError, match="'training': expected mapping"):
        parse_config({"version": 1, "training": 3})


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("version: 1\ntraining: {eval_frequency: 70}\n", 70),
        ("version: 1\nseed: 2\n", 10_000),
        ("training: {eval_frequency: 70, eval_at_start: true}\n", 70),
        ("seed: 2\n", 10_000),
    ],
)
def test_what_the_bases_of_an_old_file_say_is_above_the_old_defaults(base: str, expected: int, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(base)
    old = tmp_path / "old.yaml"
    old.write_text("version: 1\nbase: base.yaml\ntraining: {total_timesteps: 2000}\n")
    cfg = load_config(old)
    assert (cfg.training.eval_frequency, cfg.training.eval_at_start) == (expected, False)
    old.write_text(migrate_file(old))
    assert old.read_text().startswith("version: 2\n")
    assert load_config(old) == cfg


def test_a_file_of_today_on_an_old_base_keeps_what_the_base_meant(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("version: 1\nseed: 2\n")
    (tmp_path / "new.yaml").write_text("version: 2\nbase: base.yaml\n")
    assert load_config(tmp_path / "new.yaml").training.eval_frequency == 10_000


def test_a_stored_config_of_version_1_keeps_its_evaluations(tmp_path: Path) -> None:
    run = RunDir.create(TrainConfig(output_dir=str(tmp_path)))
    stored = run.path / "configs" / "resolved.yaml"
    lines = [line for line in stored.read_text().splitlines() if "eval_at_start" not in line]
    text = "\n".join(lines).replace("version: 2", "version: 1").replace("eval_frequency: auto", "eval_frequency: 10000")
    stored.write_text(text)
    training = run.config().training
    assert (training.eval_at_start, training.eval_frequency) == (False, 10_000)


@pytest.mark.parametrize(("total", "steps"), [(100_000, 10_000), (1005, 101), (3, 1), (20_000, 2_000)])
def test_auto_is_a_tenth_of_the_budget(total: int, steps: int) -> None:
    assert TrainingConfig(total_timesteps=total).eval_steps == steps
    assert TrainingConfig(total_timesteps=total, eval_frequency=0).eval_steps == 0


def test_auto_or_a_number() -> None:
    assert parse_config({}, {"training.eval_frequency": "auto"}).training.eval_frequency == "auto"
    with pytest.raises(ConfigError, match=r"training.eval_frequency: expected int or auto, got 'often' \(str\)"):
        parse_config({}, {"training.eval_frequency": "often"})
    with pytest.raises(ConfigError, match=r"training.eval_frequency must be between 0"):
        parse_config({}, {"training.eval_frequency": -1})
