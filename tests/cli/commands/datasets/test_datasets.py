"""From a run to a dataset and on, by commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import train
from rl_training.cli import main
from rl_training.data.datasets.opening import open_dataset
from rl_training.types import ConfigError


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with replay."""
    return train(
        {"algo": "sac", "env_id": "Pendulum-v1", "output_dir": str(tmp_path_factory.mktemp("runs"))},
        total_timesteps=512,
        env={"num_envs": 2},
        training={"num_eval_episodes": 0},
        hparams={"learning_starts": 400, "updates_per_step": 0.1},
    ).run_dir


def record(run_dir: Path, output: Path, *flags: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["record", str(run_dir), "--output", str(output), "--json", *flags]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_recording_twice_gives_the_same_bits(run_dir: Path, tmp_path: Path, capsys: Any) -> None:
    flags = ("--steps", "250", "--seed", "3", "--noise", "0.2", "--stochastic", "--reference-episodes", "0")
    one, other = (record(run_dir, tmp_path / name, *flags, capsys=capsys) for name in "ab")
    assert one["sha256"] == other["sha256"]
    assert one["episodes"] == 2
    data = open_dataset(tmp_path / "a")
    assert len(data) == 250
    assert data.truncated.tolist() == [i in (199, 249) for i in range(250)], "the budget cuts an episode off"
    assert data.whole.tolist() == [True, False], "the return of the second is unknown"
    assert data.info.policy["how"] == "sampled, noise 0.2"
    assert np.abs(data.actions).max() <= 2.0
    plain = ("--steps", "250", "--seed", "3", "--reference-episodes", "2")
    greedy = record(run_dir, tmp_path / "c", *plain, capsys=capsys)
    assert greedy["sha256"] != one["sha256"]
    assert greedy["ref_max"] is not None


def test_a_recorded_episode_can_be_played_again(run_dir: Path, tmp_path: Path, capsys: Any) -> None:
    import gymnasium as gym

    record(run_dir, tmp_path / "a", "--episodes", "1", "--reference-episodes", "0", capsys=capsys)
    data = open_dataset(tmp_path / "a")
    env = gym.make("Pendulum-v1")
    obs, _ = env.reset(seed=int(data.seeds[0]))
    for row in range(200):
        assert np.array_equal(obs, data.observations[row])  # type: ignore[call-overload]
        obs, reward, _, _, _ = env.step(data.actions[row])
        assert reward == data.rewards[row]
    assert np.array_equal(obs, data.observations[200])  # type: ignore[call-overload]
    env.close()


def test_replay_rows_convert_and_merge(run_dir: Path, tmp_path: Path, capsys: Any) -> None:
    found = record(run_dir, tmp_path / "replay", "--replay", "--reference-episodes", "2", capsys=capsys)
    assert (found["rows"], found["action_scale"]) == (512, "unit")
    assert found["ref_min"] is not None
    assert found["ref_min"] != found["ref_max"]
    assert main(["record", "--env-id", "Pendulum-v1", "--steps", "400", "--output", str(tmp_path / "random.npz")]) == 0
    both = [str(tmp_path / "replay"), str(tmp_path / "random.npz")]
    assert main(["dataset", "merge", *both, "--output", str(tmp_path / "mixed")]) == 0
    mixed = open_dataset(tmp_path / "mixed")
    assert len(mixed) == 912
    assert mixed.info.action_scale == "unit"
    assert np.array_equal(mixed.actions[:512], open_dataset(tmp_path / "replay").actions)
    assert (
        main(["dataset", "convert", str(tmp_path / "mixed"), str(tmp_path / "best"), "--whole", "--top", "0.25"]) == 0
    )
    best = open_dataset(tmp_path / "best")
    assert len(best.starts) == 1
    assert best.returns[0] == mixed.returns[mixed.whole].max()
    assert main(["dataset", "check", *both]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--output PATH"),
        (["--output", "x"], "one of --episodes, --steps and --replay"),
        (["--output", "x", "--replay", "--noise", "0.1"], "are for episodes"),
        (["--output", "x", "--steps", "5", "--epsilon", "2"], "--epsilon is a probability"),
        (["--output", "x", "--steps", "5", "--env-id", "CartPole-v1"], "name a run to record, or give --env-id"),
    ],
)
def test_contradicting_flags(flags: list[str], message: str, capsys: Any) -> None:
    assert main(["record", "some_run", *flags]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["convert", "nowhere", "x", "--top", "nan"], "--top is a fraction above 0 and at most 1, not 'nan'"),
        (["convert", "nowhere", "x.hdf5"], "'x.hdf5': HDF5 files are only read; name a folder"),
        (["merge", "nowhere", "neither", "--output", "FILE"], "is a file; name a folder, or a file that ends in .npz"),
    ],
)
def test_what_cannot_be_written_is_refused_first(words: list[str], message: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert main(["dataset", *(str(tmp_path / "file") if word == "FILE" else word for word in words)]) == 2
    assert message in capsys.readouterr().err
    assert main(["record", "--env-id", "Nowhere-v0", "--steps", "9", "--output", str(tmp_path / "file")]) == 2
    assert "is a file; name a folder" in capsys.readouterr().err


def test_nothing_is_played_for_a_target_that_cannot_be_written(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    (tmp_path / "x-v0" / "data").mkdir(parents=True)
    (tmp_path / "x-v0" / "data" / "metadata.json").write_text("{}")
    (tmp_path / "file").write_bytes(b"")
    for target, message in (
        ("minari:x-v0", "is a dataset already"),
        (str(tmp_path / "file" / "x"), "is no folder you may write to"),
    ):
        assert main(["record", "--env-id", "Nowhere-v0", "--steps", "9", "--output", target]) == 2
        assert message in capsys.readouterr().err


def test_a_preset_without_its_dataset_says_how_to_record_it(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "iql/pendulum"]) == 2
    said = capsys.readouterr().err
    assert "there is no dataset 'data/pendulum-replay' yet, which iql/pendulum learns from" in said
    assert "\n  rl record teacher --replay --output data/pendulum-replay" in said
    assert main(["train", "iql/pendulum", "--dataset", "nowhere"]) == 2
    assert "there is no dataset 'nowhere': name a folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_datasets_say_whose_they_are(tmp_path: Path, capsys: Any) -> None:
    one, other, both = (str(tmp_path / name) for name in ("one", "other", "both"))
    words = ["record", "--env-id", "CartPole-v1", "--episodes", "1", "--author", "Ada"]
    assert main([*words, "--licence", "CC0", "--output", one]) == 0
    assert "licence      CC0" in capsys.readouterr().out
    assert main(["dataset", "convert", one, other, "--licence", "MIT"]) == 0
    assert main(["dataset", "merge", one, other, "--output", both]) == 0
    info = open_dataset(both).info
    assert (info.author, info.licence) == ("Ada", "CC0; MIT")


def test_a_run_without_replay_buffer_is_recorded_by_episodes(tmp_path: Path, capsys: Any) -> None:
    cfg = {"algo": "random", "env_id": "CartPole-v1", "output_dir": str(tmp_path), "logging": {"terminal": False}}
    run = train(cfg, training={"total_timesteps": 64, "num_eval_episodes": 0}).run_dir
    capsys.readouterr()
    assert main(["record", str(run), "--replay", "--output", str(tmp_path / "x")]) == 2
    assert f"is of 'random', which has no replay buffer: record episodes with rl record {run.name}" in " ".join(
        capsys.readouterr().err.split()
    )


def test_damage_is_named_and_ends_with_2(tmp_path: Path, capsys: Any) -> None:
    output = str(tmp_path / "x")
    assert main(["record", "--env-id", "CartPole-v1", "--episodes", "2", "--output", output]) == 0
    path = tmp_path / "x" / "rewards.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    capsys.readouterr()
    assert main(["dataset", "check", output]) == 2
    assert "rewards.npy': column 'rewards' was changed" in capsys.readouterr().err


def test_datasets_of_two_environments_are_not_merged(tmp_path: Path) -> None:
    from rl_training.data.datasets.merging import merged
    from rl_training.eval import record
    from rl_training.training.offline.recording import Amount

    parts = [record(None, Amount(steps=3), random_env=name) for name in ("CartPole-v1", "Pendulum-v1")]
    with pytest.raises(ConfigError, match="'b' is of environment 'Pendulum-v1', 'a' of 'CartPole-v1'"):
        merged(parts, ["a", "b"])
