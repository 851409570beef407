"""Runs of one recipe differ in their seed and labels alone; indexes of older versions learn recipes later."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from run_cases import fake_run

from rl_training.config.fields import field_docs
from rl_training.config.loading import config_to_mapping
from rl_training.config.schema import TrainConfig
from rl_training.runs.index import FILE, RunIndex, all_rows, record
from rl_training.runs.recipe import LEFT_OUT, recipe_sha256
from rl_training.runs.row import COLUMNS


def tree(**changes: object) -> dict[str, object]:
    return {**config_to_mapping(TrainConfig()), **changes}


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"seed": 9}, True),
        ({"name": "b", "tags": ["x"], "output_dir": "elsewhere", "device": "cuda"}, True),
        ({"algo": "a2c"}, False),
        ({"env_id": "Acrobot-v1"}, False),
        ({"hparams": {"learning_rate": 1e-3}}, False),
    ],
)
def test_what_makes_a_recipe(changes: dict[str, object], is_same: bool) -> None:
    assert (recipe_sha256(tree(**changes)) == recipe_sha256(tree())) is is_same


def test_async_workers_give_the_same_run() -> None:
    base = tree()
    env = dict(base["env"])  # type: ignore[call-overload]
    assert recipe_sha256({**base, "env": {**env, "vectorization": "async", "num_workers": 4}}) == recipe_sha256(base)
    assert recipe_sha256({**base, "env": {**env, "num_envs": 99}}) != recipe_sha256(base)


def test_every_field_that_is_left_out_exists() -> None:
    fields = set(field_docs("ppo"))
    for path in LEFT_OUT - {"base", "version"}:
        assert path in fields or any(field.startswith(f"{path}.") for field in fields), path


def test_seeds_of_one_config_share_the_recipe_in_the_index(tmp_path: Path) -> None:
    for number in range(3):
        record(fake_run(tmp_path, number))
    record(fake_run(tmp_path, 3, algo="a2c"))
    recipes = [row["recipe_sha256"] for row in RunIndex(tmp_path).rows()]
    assert None not in recipes
    assert [recipes.index(recipe) for recipe in recipes] == [0, 0, 0, 3]


def old_index(output_dir: Path) -> None:
    """An index as version 0.2.0 wrote it: without the columns that came later."""
    columns = [name for name in COLUMNS if name not in ("recipe_sha256", "notes")]
    rows = RunIndex(output_dir).rows(large=("results", "config"))
    (output_dir / FILE).unlink()
    for ending in ("-wal", "-shm"):
        (output_dir / f"{FILE}{ending}").unlink(missing_ok=True)
    connection = sqlite3.connect(output_dir / FILE)
    kinds = ", ".join([f'"{name}" {COLUMNS[name]}' for name in columns])
    connection.execute(f"CREATE TABLE runs ({kinds})")
    for row in rows:
        values = [json.dumps(row[name]) if isinstance(row[name], dict | list) else row[name] for name in columns]
        connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(columns))})", values)
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()


def test_an_index_of_an_older_version_is_read_and_filled_later(tmp_path: Path) -> None:
    for number in range(2):
        record(fake_run(tmp_path, number, reward=1.0))
    expected = [row["recipe_sha256"] for row in RunIndex(tmp_path).rows()]
    old_index(tmp_path)
    rows, note = all_rows(tmp_path)
    assert (note, [row["recipe_sha256"] for row in rows]) == (None, [None, None])
    assert RunIndex(tmp_path).fill_recipes() == 2
    assert [row["recipe_sha256"] for row in RunIndex(tmp_path).rows()] == expected
    assert RunIndex(tmp_path).fill_recipes() == 0


def test_single_values_inside_the_large_columns(tmp_path: Path) -> None:
    record(fake_run(tmp_path, 0, reward=2.5))
    record(fake_run(tmp_path, 1))
    rate, missing = ("hparams", "learning_rate"), ("hparams", "no such")
    one, two = RunIndex(tmp_path).inside("config", [rate, missing, ("env", "normalize_obs"), ("tags",)]).values()
    assert one == two == {rate: 3e-4, ("env", "normalize_obs"): False, ("tags",): []}
    found = RunIndex(tmp_path).inside("results", [("eval/return_mean",)])
    assert list(found.values()) == [{("eval/return_mean",): 2.5}, {}]
    with pytest.raises(ValueError, match="nothing inside"):
        RunIndex(tmp_path).inside("seed", [("x",)])


def test_rows_of_single_directories(tmp_path: Path) -> None:
    runs = [fake_run(tmp_path, number) for number in range(3)]
    for run in runs:
        record(run)
    only = RunIndex(tmp_path).rows(large=("config",), only=[runs[1].name, "not there"])
    assert [row["directory"] for row in only] == [runs[1].name]
    assert only[0]["config"]["algo"] == "ppo"
