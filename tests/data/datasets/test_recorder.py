"""`logging.record`: what is kept, what a resume cuts back, and who may read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import resume, train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.data.datasets.opening import open_dataset
from rl_training.data.datasets.replay_rows import replay_dataset
from rl_training.runs.directory import RunDir

SMALL = {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}


def recorded(algo: str, env_id: str, output_dir: Path, **fields: Any) -> Any:
    cfg: dict[str, Any] = {"algo": algo, "env_id": env_id, "output_dir": str(output_dir), "network": SMALL}
    cfg |= {"env": {"num_envs": 2}, "logging": {"record": True}}
    training = {"total_timesteps": 1024, "num_eval_episodes": 0, "checkpoint_frequency": 512}
    return train({**cfg, "training": training, **fields})


def test_it_holds_what_the_replay_buffer_holds(tmp_path: Path) -> None:
    run = recorded("sac", "Pendulum-v1", tmp_path, hparams={"learning_starts": 900, "batch_size": 8})
    data = open_dataset(run.run_dir / "dataset")
    ring = replay_dataset(RunDir.open(run.run_dir))
    assert len(data) == 1024
    for name in ("observations", "rewards", "terminated", "truncated", "starts", "whole"):
        one, other = np.asarray(getattr(data, name)), np.asarray(getattr(ring, name))
        np.testing.assert_array_equal(one.astype(other.dtype), other, err_msg=name)  # replay has rewards in float32
    np.testing.assert_allclose(data.unit_actions(), ring.unit_actions(), atol=1e-6)
    assert data.info.action_scale == "env"
    assert data.lengths.max() == 200


@pytest.mark.parametrize(("algo", "env_id"), [("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"), ("ppo", "Pendulum-v1")])
def test_a_resumed_run_has_the_same_sha256(algo: str, env_id: str, tmp_path: Path) -> None:
    one, other = (recorded(algo, env_id, tmp_path / name) for name in "ab")
    CheckpointManager(other.run_dir).rewind(512)
    path = other.run_dir / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "stopped"}))
    resume(other.run_dir)
    data, again = (open_dataset(run.run_dir / "dataset") for run in (one, other))
    assert data.sha256 == again.sha256
    assert len(data) >= 1024
    assert np.abs(np.asarray(data.actions, np.float64)).max() <= 2.0  # what the environment received


def test_it_is_a_dataset_like_any_other(tmp_path: Path, capsys: Any) -> None:
    run = recorded("ppo", "CartPole-v1", tmp_path)
    folder = str(run.run_dir / "dataset")
    capsys.readouterr()
    assert main(["dataset", "info", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"]["how"] == "training"
    assert main(["dataset", "convert", folder, str(tmp_path / "data"), "--whole"]) == 0
    result = train(
        {"algo": "bc", "output_dir": str(tmp_path), "dataset": {"path": folder}, "network": SMALL},
        training={"total_updates": 5, "num_eval_episodes": 0},
    )
    assert result.metrics["updates"] == 5


def test_where_no_step_is_seen_it_is_refused(tmp_path: Path, capsys: Any) -> None:
    for flags in (["--backend", "jax", "--lane", "compiled"], ["--env.overlap", "true"]):
        words = ["train", "ppo/cartpole", *flags, "--logging.record", "true", "--output-dir", str(tmp_path)]
        assert main(words) == 2
        assert "logging.record" in capsys.readouterr().err
