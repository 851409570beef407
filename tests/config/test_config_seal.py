"""Which fields a checkpoint records: every field is classified, and edited ones are named."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.config.fields import field_docs
from rl_training.config.loading import config_to_mapping, parse_config
from rl_training.config.schema import TrainConfig
from rl_training.config.seal import FREE, SEALED, Change, sealed_changes, sealed_fields
from rl_training.registry import algorithms


def sealed(**values: Any) -> dict[str, Any]:
    return sealed_fields(config_to_mapping(parse_config(values)))


def covers(entry: str, path: str) -> bool:
    return path == entry or path.startswith(f"{entry}.")


@pytest.mark.parametrize("algo", algorithms.names())
def test_every_field_of_a_config_is_sealed_or_free(algo: str) -> None:
    """A new field must be added to SEALED or FREE in `config/seal.py`, with the reason."""
    for path in field_docs(algo):
        entries = [entry for entry in (*SEALED, *FREE) if covers(entry, path)]
        assert len(entries) == 1, f"'{path}' is covered by {entries or 'no entry'} of SEALED and FREE"


def test_the_tables_name_nothing_that_is_not_there() -> None:
    paths = [*field_docs("ppo"), "hparams"]
    unknown = [entry for entry in (*SEALED, *FREE) if not any(covers(entry, path) for path in paths)]
    assert unknown == []
    assert all({**SEALED, **FREE}.values())


def test_the_sealed_fields_are_those_of_the_table() -> None:
    tree = sealed()
    assert tree["version"] == TrainConfig().version
    assert set(tree) == {entry.partition(".")[0] for entry in SEALED} | {"version"}
    assert set(tree["training"]) == {entry.partition(".")[2] for entry in SEALED if entry.startswith("training.")}
    assert tree["hparams"]["learning_rate"] == parse_config({}).hparams.learning_rate


@pytest.mark.parametrize(
    "edit",
    [
        {"output_dir": "elsewhere"},
        {"name": "mine", "tags": ["a"]},
        {"device": "cuda"},
        {"env": {"vectorization": "async", "num_workers": 2, "step_timeout": 5.0}},
        {"training": {"total_timesteps": 7, "total_episodes": 3, "stop_at_return": 1.0, "checkpoint_frequency": 1}},
        {"checkpoint": {"keep_last": 9}, "logging": {"log_frequency": 100}, "monitor": {"checks": "full"}},
    ],
    ids=lambda edit: ",".join(edit),
)
def test_what_decides_no_number_may_change(edit: dict[str, Any]) -> None:
    assert sealed_changes(sealed(), sealed(**edit)) == []


@pytest.mark.parametrize(
    ("edit", "changes"),
    [
        ({"seed": 3}, [Change("seed", 0, 3)]),
        ({"env_id": "Acrobot-v1"}, [Change("env_id", "CartPole-v1", "Acrobot-v1")]),
        ({"hparams": {"gamma": 0.9}}, [Change("hparams.gamma", 0.99, 0.9)]),
        ({"network": {"actor": {"hidden_dims": [32]}}}, [Change("network.actor.hidden_dims", [64, 64], [32])]),
        ({"env": {"kwargs": {"g": 1}}}, [Change("env.kwargs.g", None, 1)]),
        ({"env": {"vectorization": "native"}}, [Change("env.vectorization", "sync", "native")]),
        ({"training": {"num_eval_episodes": 3}}, [Change("training.num_eval_episodes", 10, 3)]),
        (
            {"env": {"wrappers": ["time_aware"]}, "plugins": ["mine"]},
            [
                Change("plugins", [], ["mine"]),
                Change("env.wrappers", [], [{"name": "time_aware", "kwargs": {}, "train_only": False}]),
            ],
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_what_decides_numbers_is_named_with_both_values(edit: dict[str, Any], changes: list[Change]) -> None:
    assert sealed_changes(sealed(), sealed(**edit)) == changes


def test_a_change_in_words() -> None:
    assert str(Change("hparams.gamma", 0.99, 0.9)) == "hparams.gamma was 0.99 and is 0.9"


def test_spelling_and_defaults_of_later_versions_are_no_change() -> None:
    """What an older version did not have is filled in with the default; 1 and 1.0 are the same number."""
    stored = sealed(hparams={"vf_coef": 1})
    del stored["hparams"]["gamma"]
    del stored["env"]["frame_stack"]
    assert sealed_changes(stored, sealed(hparams={"vf_coef": 1.0})) == []


def test_an_older_layout_is_migrated_before_it_is_compared() -> None:
    now = sealed(env={"num_envs": 8}, hparams={"clip_coef": 0.3})
    stored = {**now, "version": 0, "num_envs": 8, "hparams": {**now["hparams"], "clip_range": 0.3}}
    stored["env"] = {name: value for name, value in now["env"].items() if name != "num_envs"}
    del stored["hparams"]["clip_coef"]
    assert sealed_changes(stored, now) == []
    assert sealed_changes({**stored, "num_envs": 4}, now) == [Change("env.num_envs", 4, 8)]


def test_names_that_this_process_does_not_know_are_compared_as_they_are_written() -> None:
    stored = {**sealed(), "callbacks": [{"name": "registered_elsewhere", "kwargs": {}}]}
    assert [change.path for change in sealed_changes(stored, sealed())] == ["callbacks"]
