"""`executor:` in the config of a run: how it is written, and that it changes neither hashes nor what is sealed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl_training.config.loading import config_sha256, config_to_mapping, parse_config
from rl_training.config.schema import TrainConfig
from rl_training.config.seal import sealed_changes, sealed_fields
from rl_training.config.searches.sweeps import load_sweep
from rl_training.config.searches.tuning import load_tune
from rl_training.config.sections.executor import ExecutorConfig
from rl_training.runs.foreign_code import foreign_code
from rl_training.runs.recipe import recipe_sha256
from rl_training.types import ConfigError

OTHERS: list[Any] = ["ray:10.0.0.1:6379", "slurm", "mine.place:Executor", {"type": "ray", "gpus": 0.5}]


@pytest.mark.parametrize("executor", OTHERS, ids=str)
def test_hashes_and_seals_know_no_executor(executor: Any) -> None:
    here, there = TrainConfig(), parse_config({"executor": executor})
    assert there.executor != here.executor
    assert config_sha256(there) == config_sha256(here)
    trees = [config_to_mapping(cfg) for cfg in (here, there)]
    assert recipe_sha256(trees[0]) == recipe_sha256(trees[1])
    assert sealed_changes(*(sealed_fields(tree) for tree in trees)) == []
    assert foreign_code(there) == []  # a stored run starts nothing by it


def test_a_config_without_one_has_the_hash_that_it_always_had() -> None:
    """Runs of versions without the field are found again by `--auto-resume`."""
    tree = config_to_mapping(TrainConfig())
    old = {key: value for key, value in tree.items() if key != "executor"}
    assert parse_config(old) == TrainConfig()
    assert recipe_sha256(old) == recipe_sha256(tree)


def test_a_name_is_a_section_and_layers_add_up() -> None:
    file = {"executor": "ray:10.0.0.1:6379"}
    assert parse_config(file).executor == ExecutorConfig("ray", "10.0.0.1:6379")
    assert parse_config(file, {"executor.cpus": 2.0}).executor == ExecutorConfig("ray", "10.0.0.1:6379", cpus=2.0)
    assert parse_config({"executor": {"type": "slurm", "gpus": 1}}, {"executor": "local"}).executor.gpus == 1


def test_names_that_others_chose_keep_their_dashes() -> None:
    executor = {"type": "slurm", "options": {"gpu-bind": "none"}, "env": {"NCCL_DEBUG": "INFO"}, "max-slots": 3}
    read = parse_config({"executor": executor}).executor
    assert read == ExecutorConfig("slurm", max_slots=3, options={"gpu-bind": "none"}, env={"NCCL_DEBUG": "INFO"})


@pytest.mark.parametrize(
    ("executor", "words"),
    [
        ("rayy", "executor.type.* did you mean 'ray'"),
        ({"type": "slrum"}, "did you mean 'slurm'"),
        ({"type": "ray", "cpu": 2}, "unknown key 'executor.cpu'; did you mean 'cpus'"),
        ({"type": "slurm", "address": "here:1"}, "'executor.address' is for the executor ray"),
        ({"cpus": 0}, "cpus"),
    ],
    ids=str,
)
def test_mistakes_are_refused_with_what_was_meant(executor: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_config({"executor": executor})


def test_a_sweep_and_a_search_take_the_executor_of_their_base(tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text(json.dumps({"algo": "ppo", "executor": {"type": "slurm", "cpus": 2}}))
    many = {"base_config": "base.json", "sweep": {"hparams.gamma": [0.9, 0.99]}}
    for name, fields in (("plain", {}), ("own", {"executor": "local"})):
        (tmp_path / f"{name}.json").write_text(json.dumps({**many, **fields}))
    for load in (load_sweep, load_tune):
        assert load(tmp_path / "plain.json").executor == ExecutorConfig("slurm", cpus=2.0)
        assert load(tmp_path / "own.json").executor == ExecutorConfig()
