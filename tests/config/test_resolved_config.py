"""The record of a resolved config: where it came from, its mapping and hash, and changes without another reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.config import TrainConfig, yaml_reader
from rl_training.config.loading import (
    as_resolved,
    config_sha256,
    config_to_mapping,
    load_config,
    parse_config,
    read_config,
    resolve_config,
    resolve_mapping,
)
from rl_training.types import ConfigError

TEXT = "algo: ppo  # mine\nenv_id: CartPole-v1\nhparams: {gamma: 0.9}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    return path


def test_the_record_says_where_the_config_came_from(file: Path) -> None:
    resolved = resolve_config(file, {"seed": 3})
    assert (resolved.path, resolved.source, resolved.text) == (file, str(file), TEXT)
    assert resolved.config == load_config(file, {"seed": 3})
    assert resolved.config.seed == 3


def test_a_preset_and_a_mapping() -> None:
    preset, mapping = resolve_config("ppo/cartpole"), resolve_mapping({"algo": "a2c"}, source="here")
    assert preset.source == "preset ppo/cartpole"
    assert preset.path is not None
    assert preset.text == preset.path.read_text()
    assert (mapping.source, mapping.path, mapping.text) == ("here", None, None)


def test_mapping_and_hash_are_those_of_the_config(file: Path) -> None:
    resolved = resolve_config(file)
    assert resolved.mapping == config_to_mapping(resolved.config)
    assert next(iter(resolved.mapping)) == "version"
    assert resolved.sha256 == config_sha256(resolved.config)
    assert resolved.sha256 != resolve_config(file, {"seed": 1}).sha256


def test_a_config_of_python_is_checked_once() -> None:
    resolved = as_resolved(TrainConfig(seed=5))
    assert as_resolved(resolved) is resolved
    assert resolved.config.seed == 5


def test_with_values_changes_the_config_and_keeps_the_source(file: Path) -> None:
    before = resolve_config(file)
    mapping = dict(before.mapping)
    after = before.with_values({"training.total_timesteps": 512, "monitor.debug.enabled": True, "tags": ["a"]})
    assert after.config == load_config(
        file, {"training.total_timesteps": 512, "monitor.debug.enabled": True, "tags": ["a"]}
    )
    assert (after.path, after.text) == (before.path, before.text)
    assert before.mapping == mapping, "the record that it started from is left alone"


def test_with_values_refuses_what_a_file_could_not_say(file: Path) -> None:
    with pytest.raises(ConfigError, match="gamma must be between 0 and 1"):
        resolve_config(file).with_values({"hparams.gamma": 2})


def test_one_reading_serves_many_sets_of_flags(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(f"base: {file.name}\nseed: 7\n")
    read: list[str] = []
    usual = yaml_reader.read_text
    monkeypatch.setattr(yaml_reader, "read_text", lambda path, source: read.append(source) or usual(path, source))
    layers = read_config(base)
    gammas = [layers.resolve({"hparams.gamma": gamma}).config.hparams.gamma for gamma in (0.5, 0.6, 0.7)]
    assert gammas == [0.5, 0.6, 0.7]
    assert layers.resolve().config == parse_config({"base": str(base)})
    assert [Path(name).name for name in read[:2]] == ["base.yaml", "mine.yaml"]
    assert len(read) == 4, "two files for the layers, and two for the comparison"
