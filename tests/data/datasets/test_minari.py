"""Minari's format: what is written comes back bit for bit, Minari itself opens it, and damage is refused."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from dataset_cases import dict_dataset, small_dataset

from rl_training.cli import main
from rl_training.data.datasets.dataset import Dataset
from rl_training.data.datasets.info import DatasetError
from rl_training.data.datasets.minari_file import MAIN, METADATA, data_folder, read_minari, write_minari
from rl_training.data.datasets.native import write_native
from rl_training.data.datasets.opening import open_dataset
from rl_training.envs.factory import spec_text
from rl_training.eval import record
from rl_training.training.offline.recording import Amount
from rl_training.types import BoxSpec, DictSpec, DiscreteSpec


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def assert_equal(one: Dataset, other: Dataset) -> None:
    assert one.sha256 == other.sha256
    for name, column in one.stored().items():
        found = other.stored()[name]
        assert found.dtype == column.dtype, name
        assert np.asarray(found).tobytes() == np.asarray(column).tobytes(), name
    assert one.info.to_json() == other.info.to_json()


@pytest.mark.parametrize("make", [small_dataset, dict_dataset])
def test_a_dataset_comes_back_bit_for_bit(make: Any) -> None:
    data = make()
    data = replace(data, info=replace(data.info, author="A. Author", licence="CC0", env={"num_envs": 2}, seed=4))
    folder = write_minari(data, "minari:test/small-v0")
    for where in ("minari:test/small-v0", str(folder), str(folder.parent)):
        assert_equal(open_dataset(where), data)


def test_minari_opens_it_with_reference_scores_and_final_observations(root: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import minari

        data = record(None, Amount(steps=450), random_env="Pendulum-v1")  # the last episode is cut off
        data = replace(data, info=replace(data.info, ref_min=-1200.0, ref_max=-150.0))
        write_minari(data, "minari:pendulum/random-v0", spec_text("Pendulum-v1"))
        found = minari.load_dataset("pendulum/random-v0")
        episodes = list(found.iterate_episodes())
        env = found.recover_environment()
    assert env.spec is not None
    assert env.spec.id == "Pendulum-v1"
    env.close()
    assert (found.total_episodes, found.total_steps) == (3, 450)
    metadata = found.storage.metadata
    assert (metadata["ref_min_score"], metadata["ref_max_score"]) == (-1200.0, -150.0)
    for number, (episode, (begin, end)) in enumerate(zip(episodes, data.episodes(), strict=True)):
        seen = np.asarray(data.observations)[begin + number : end + number + 1]
        assert episode.observations.tobytes() == seen.tobytes()
        assert episode.actions.tobytes() == np.asarray(data.actions[begin:end]).tobytes()
        assert episode.rewards.tobytes() == np.asarray(data.rewards[begin:end]).tobytes()
        assert episode.truncations[-1]
        assert not episode.terminations.any()


def test_what_minari_wrote_is_read() -> None:
    """Nested observations, discrete actions that begin at 1, seeds and scores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gymnasium as gym
        import minari
        from minari.data_collector import EpisodeBuffer

        camera = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)
        inner = gym.spaces.Dict({"camera": camera, "pair": gym.spaces.Tuple((gym.spaces.Box(-1, 1, (2,)),))})
        observed = {
            "camera": np.arange(4 * 48, dtype=np.uint8).reshape(4, 4, 4, 3),
            "pair": (np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2),),
        }
        buffer = EpisodeBuffer(
            id=0,
            seed=7,
            observations=observed,
            actions=np.array([1, 3, 2]),
            rewards=[1.0, 2.0, 3.0],
            terminations=[False, False, False],
            truncations=[False, False, True],
        )
        minari.create_dataset_from_buffers(
            "other/tiny-v0",
            [buffer],
            env="CartPole-v1",
            observation_space=inner,
            action_space=gym.spaces.Discrete(3, start=1),
            ref_min_score=1.0,
            ref_max_score=3.0,
            jpeg_encoding=False,
        )
    data = open_dataset("minari:other/tiny-v0")
    space = data.info.spaces[0]
    assert isinstance(space, DictSpec)
    assert isinstance(space.spaces["camera"], BoxSpec)
    assert data.info.spaces[1] == DiscreteSpec(3)
    assert data.info.env_id == "CartPole-v1"
    assert isinstance(data.observations, dict)
    assert data.observations["camera"].tobytes() == observed["camera"].tobytes()
    assert data.observations["pair/0"].tobytes() == observed["pair"][0].tobytes()
    assert data.actions.tolist() == [0, 2, 1]
    assert data.seeds.tolist() == [7]
    assert data.score([3.0]).tolist() == [100.0]


def test_from_the_command_line(tmp_path: Path, capsys: Any) -> None:
    source = write_native(small_dataset(), tmp_path / "native")
    assert main(["dataset", "convert", str(source), "minari:a/b-v0"]) == 0
    assert main(["dataset", "convert", "minari:a/b-v0", str(tmp_path / "again")]) == 0
    assert main(["dataset", "check", str(tmp_path / "again")]) == 0
    assert open_dataset(tmp_path / "again").sha256 == open_dataset(source).sha256
    assert main(["dataset", "convert", str(source), "minari:a/b-v0"]) == 2
    assert "is a dataset already" in capsys.readouterr().err


def changed(folder: Path, how: str) -> None:
    path = folder / MAIN
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif how == "metadata":
        (folder / METADATA).write_text("{")
    elif how == "format":
        (folder / METADATA).write_text(json.dumps({"data_format": "arrow"}))
    else:
        with h5py.File(path, "a") as file:
            if how == "value":
                file["episode_0/rewards"][0] = 99.0
            elif how == "nan":
                file["episode_0/rewards"][0] = np.nan
            elif how == "missing":
                del file["episode_1/actions"]
            elif how == "linked":
                del file["episode_1/actions"]
                file["episode_1/actions"] = h5py.ExternalLink("elsewhere.hdf5", "/x")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut", "cut off or no HDF5 file"),
        ("metadata", "is not JSON"),
        ("format", "only Minari's hdf5 is read"),
        ("value", "was changed or is damaged"),
        ("nan", "column 'rewards' is not finite"),
        ("missing", "no column 'actions' in episode_1"),
        ("linked", "no column 'actions' in episode_1"),
    ],
)
def test_damage_is_refused(how: str, message: str) -> None:
    folder = write_minari(small_dataset(), "minari:test/small-v0")
    changed(folder, how)
    with pytest.raises(DatasetError, match=message):
        read_minari("minari:test/small-v0")


def test_names_stay_inside_of_the_root(root: Path) -> None:
    for name in ("minari:../x", "minari:", "minari:a//b", "minari:a/../../b"):
        with pytest.raises(DatasetError, match="is no name of a Minari dataset"):
            data_folder(name)
    assert data_folder("minari:a/b-v0") == root / "a" / "b-v0" / "data"


def test_unit_actions_are_not_written() -> None:
    data = small_dataset()
    with pytest.raises(DatasetError, match="record episodes"):
        write_minari(replace(data, info=replace(data.info, action_scale="unit")), "minari:x/y-v0")
