"""Offline runs: what they learn, count, refuse, and how they resume."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offline_runs import TINY, assert_same, offline
from sampling import sampled

from rl_training import resume
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.config.schema import DatasetConfig
from rl_training.data.datasets.dataset import Dataset, Steps, joined
from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.data.datasets.info import DatasetInfo
from rl_training.data.datasets.native import write_native
from rl_training.eval import evaluate, load, record
from rl_training.system.json_lines import read_rows
from rl_training.training.offline.recording import Amount
from rl_training.types import CheckpointError, RLTrainingError


@pytest.mark.parametrize("algo", sampled(TINY, ("bc", "iql", "dt")))
def test_a_run_counts_updates_and_resumes_exactly(algo: str, random_pendulum: Path, tmp_path: Path) -> None:
    settings = {"total_updates": 600, "num_eval_episodes": 1, "checkpoint_frequency": 256}
    common: dict[str, Any] = {"training": settings, "env": {"normalize_obs": True}}
    common["hparams"] = {"batch_size": 16, **TINY[algo]}
    if algo == "dt":
        common["network"] = {"actor": {"memory": {"size": 8, "layers": 1, "heads": 2, "window": 4}}}
    one = offline(algo, random_pendulum, tmp_path / "a", **common)
    assert (one.metrics["updates"], one.metrics["env_steps"]) == (600, 0)
    assert one.checkpoint_path.name == "step_000000000600"
    assert json.loads((one.run_dir / "run.json").read_text())["axis"] == "updates"
    rows = list(read_rows(one.run_dir / "logs" / "metrics.jsonl"))
    assert [row["updates"] for row in rows] == [256, 512, 600]
    assert rows[-1]["eval/score_best"] >= rows[-1]["eval/score"]

    scored = evaluate(one.run_dir, episodes=1)
    assert (scored["env_steps"], scored["updates"]) == (0, 600)

    other = offline(algo, random_pendulum, tmp_path / "b", **common)
    manager = CheckpointManager(other.run_dir)
    manager.rewind(256)
    (other.run_dir / "run.json").write_text(
        json.dumps({**json.loads((other.run_dir / "run.json").read_text()), "status": "stopped"})
    )
    resume(other.run_dir)
    ends = [CheckpointManager(run.run_dir).load("latest").parts for run in (one, other)]
    for part in ("policy", "algorithm", "dataset", "progress"):
        assert_same(ends[0][part], ends[1][part], part)


def test_a_run_comes_out_the_same_again(random_pendulum: Path, tmp_path: Path) -> None:
    from rl_training.experiments.keeping.verify import ReproducibilityChecker

    result = offline("iql", random_pendulum, tmp_path, training={"total_updates": 300, "num_eval_episodes": 1})
    report = ReproducibilityChecker().verify_experiment(result.run_dir)
    assert report.reproduced, report.differences
    assert report.checkpoints == len(CheckpointManager(result.run_dir).steps()) >= 2


def test_statistics_of_the_dataset_are_frozen_in_the_policy(random_pendulum: Path, tmp_path: Path) -> None:
    from rl_training.data.datasets.opening import open_dataset

    result = offline("bc", random_pendulum, tmp_path, env={"normalize_obs": True})
    data = open_dataset(random_pendulum)
    obs = data.columns()["obs"]
    seen = load(result.run_dir).policy.normalize(obs)  # type: ignore[attr-defined]
    np.testing.assert_allclose(seen, (obs - obs.mean(0)) / obs.std(0), atol=1e-4)


def test_a_finished_run_goes_on_with_more_updates(random_pendulum: Path, tmp_path: Path, capsys: Any) -> None:
    short = {"total_updates": 64, "num_eval_episodes": 0}
    run = offline("bc", random_pendulum, tmp_path, training=short).run_dir
    capsys.readouterr()
    assert main(["resume", str(run)]) == 0
    assert "--total-updates 128" in capsys.readouterr().out
    assert main(["resume", str(run), "--total-timesteps", "128"]) == 2
    assert "give --total-updates N" in capsys.readouterr().err
    assert main(["resume", str(run), "--total-updates", "128"]) == 0
    info = json.loads((run / "run.json").read_text())
    assert (info["total_updates"], "total_timesteps" in info) == (128, False)
    assert json.loads((run / "metrics.json").read_text())["updates"] == 128


def test_another_dataset_at_resume_is_refused(random_pendulum: Path, tmp_path: Path) -> None:
    data = record(None, Amount(steps=300), random_env="Pendulum-v1")
    folder = write_native(data, tmp_path / "data")
    result = offline("bc", folder, tmp_path, training={"total_updates": 300, "num_eval_episodes": 0})
    for path in folder.iterdir():
        path.unlink()
    write_native(record(None, Amount(steps=300), random_env="Pendulum-v1", seed=5), folder)
    CheckpointManager(result.run_dir).rewind(0)
    with pytest.raises(RLTrainingError, match="a run goes on with the dataset that it was started with"):
        resume(result.run_dir)
    replay = DatasetReplay(data, np.random.default_rng(0), DatasetConfig())
    other = {**replay.state_dict(), "sha256": "0" * 64}
    with pytest.raises(CheckpointError):
        replay.load_state_dict(other)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--algo", "bc"], "learns from a dataset: give --dataset PATH"),
        (
            ["--algo", "bc", "--dataset", "DATA", "--total-timesteps", "100000"],
            "--total-timesteps: 'bc' is offline and",
        ),
        (["--algo", "bc", "--dataset", "DATA", "--total-timesteps", "9"], "give training.total_updates instead"),
        (["--algo", "bc", "--dataset", "DATA", "--training.total-episodes", "9"], "error: the command line: 'bc' is"),
        (["--algo", "iql", "--dataset", "DATA", "--dataset.reward", "-1"], "--dataset.reward must be > 0, not -1"),
        (["--algo", "bc", "--dataset", "run:nothing"], "error: 'run:nothing': no run 'nothing'"),
        (["--algo", "bc", "--dataset", "run:"], "'run:' names no run: give run:RUN"),
        (["--algo", "bc", "--dataset", "DATA", "--env-id", "CartPole-v1"], "give --env-id Pendulum-v1"),
        (["dt/pendulum", "--dataset", "DATA", "--backend", "jax"], "has no JAX implementation"),
        (["dt/pendulum", "--dataset", "DATA", "--dataset.reward", "0.5"], "leave dataset.reward at raw"),
        (["dt/pendulum", "--dataset", "DATA", "--network.actor.memory.type", "gru"], "is a transformer, not 'gru'"),
        (["bc/pendulum", "--dataset", "DATA", "--dataset.reward", "0.5"], "looks at no rewards"),
        (["--algo", "bc", "--dataset", "DATA", "--env.overlap", "true"], "env.overlap cannot be used"),
        (["--algo", "sac", "--env-id", "Pendulum-v1", "--dataset", "DATA"], "are for offline algorithms"),
        (["--algo", "bc", "--dataset", "nowhere"], "there is no dataset 'nowhere'"),
    ],
)
def test_refusals_are_one_sentence_and_exit_2(
    flags: list[str], message: str, random_pendulum: Path, tmp_path: Path, capsys: Any
) -> None:
    words = [str(random_pendulum) if flag == "DATA" else flag for flag in flags]
    assert main(["train", *words, "--output-dir", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert "problems" not in said
    assert not list(tmp_path.iterdir())


def test_discrete_actions_are_referred_to_offline_algorithms(tmp_path: Path, capsys: Any) -> None:
    folder = write_native(record(None, Amount(steps=60), random_env="CartPole-v1"), tmp_path / "cartpole")
    for algo in ("td3_bc", "iql", "rebrac", "awac"):
        assert main(["train", "--algo", algo, "--dataset", str(folder), "--output-dir", str(tmp_path / "runs")]) == 2
        assert "for Discrete actions take cql, bc or dt" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"env_id": "imported_by_a_dataset:Env"}, "env_id imported_by_a_dataset:Env"),
        (
            {"env": {"wrappers": [{"name": "imported_by_a_dataset:Env"}]}},
            "env.wrappers.*.name imported_by_a_dataset:Env",
        ),
        ({"env": {"kwargs": {"xml_file": "/tmp/any.xml"}}}, "env.kwargs.** /tmp/any.xml"),
    ],
)
def test_a_dataset_names_no_code(
    changes: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """dataset.json may come from anybody: an environment of its own code would be imported and called."""
    marker = tmp_path / "executed"
    (tmp_path / "imported_by_a_dataset.py").write_text(f"open({str(marker)!r}, 'w')\nEnv = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    data = record(None, Amount(steps=20), random_env="Pendulum-v1")
    folder = write_native(replace(data, info=replace(data.info, **changes)), tmp_path / "data")
    assert main(["train", "--algo", "bc", "--dataset", str(folder), "--output-dir", str(tmp_path / "runs")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert named in said
    assert "give --env-id" in said
    assert not marker.exists()
    assert not (tmp_path / "runs").exists()


def test_only_the_best_episodes_and_scaled_rewards() -> None:
    rewards = [np.full(3, value) for value in (1.0, 5.0, 3.0, 9.0)]
    from rl_training.types import BoxSpec, DiscreteSpec

    space = BoxSpec(np.full(1, -1.0, np.float32), np.full(1, 1.0, np.float32), np.dtype(np.float32))
    end = np.array([False, False, True])
    episodes = [
        Steps(np.full((4, 1), i, np.float32), np.full(3, i % 2), r, end, end & ~end) for i, r in enumerate(rewards)
    ]
    data: Dataset = joined(DatasetInfo("X", (space, DiscreteSpec(2))), episodes)
    replay = DatasetReplay(data, np.random.default_rng(0), DatasetConfig(top_fraction=0.5, reward="return_range"))
    batch = replay.sample(200)
    assert set(batch["obs"][:, 0].tolist()) == {1.0, 3.0}
    scale = 1000.0 / (27.0 - 3.0)
    assert sorted(set(batch["rewards"].tolist())) == pytest.approx([5 * scale, 9 * scale], rel=1e-6)


def test_cloning_a_discrete_policy(tmp_path: Path) -> None:
    """A rule on CartPole that a random policy never follows is imitated: all episodes last 200 steps or more."""
    import gymnasium as gym

    from rl_training.envs import space_spec

    env = gym.make("CartPole-v1")
    spaces = space_spec(env.observation_space), space_spec(env.action_space)
    episodes = []
    for seed in range(12):
        obs, _ = env.reset(seed=seed)
        seen, actions, ended = [obs], [], False
        while not ended and len(actions) < 200:
            actions.append(int(obs[2] + 0.3 * obs[3] > 0))
            obs, _, ended, _, _ = env.step(actions[-1])
            seen.append(obs)
        flags = np.arange(len(actions)) == len(actions) - 1
        episodes.append(
            Steps(np.array(seen), np.array(actions), np.ones(len(actions)), flags & ended, flags & (not ended))
        )
    env.close()
    folder = write_native(joined(DatasetInfo("CartPole-v1", spaces), episodes), tmp_path / "data")
    for seed in (0, 1):
        result = offline("bc", folder, tmp_path, env_id="CartPole-v1", seed=seed, training={"total_updates": 1500})
        assert result.metrics["eval/return_mean"] > 200, seed
