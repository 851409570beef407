"""The replay buffer of a run as a dataset: its rows bit for bit, cut into the episodes of each environment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rl_training import train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.data.datasets.info import DatasetError
from rl_training.data.datasets.opening import open_dataset
from rl_training.data.datasets.replay_rows import episodes_of


@pytest.mark.parametrize("num_envs", [1, 3])
def test_rows_equal_the_ring_bit_for_bit(num_envs: int, tmp_path: Path) -> None:
    result = train(
        {"algo": "sac", "env_id": "Pendulum-v1", "output_dir": str(tmp_path)},
        total_timesteps=900,
        env={"num_envs": num_envs},
        buffer={"size": 450},
        training={"num_eval_episodes": 0},
        hparams={"learning_starts": 10_000},
    )
    data = open_dataset(f"run:{result.run_dir}")
    ring = CheckpointManager(result.run_dir).load("latest", parts={"buffer"}).parts["buffer"]["rows"]
    rows, order = ring.arrays(), np.arange(450)
    order = np.concatenate([order[(order + ring.start) % num_envs == env] for env in range(num_envs)])
    for name, column in data.columns().items():
        assert column.tobytes() == rows[name][order].tobytes(), name
    assert data.info.action_scale == "unit"
    assert data.whole.any() == (num_envs == 1)
    assert data.truncated.sum() == rows["truncated"].sum() > 0


def test_skipped_rows_are_dropped_and_breaks_are_cut() -> None:
    obs = np.array([[0.0], [1.0], [2.0], [9.0], [5.0], [6.0]], np.float32)
    flags = np.zeros((3, 6), bool)
    flags[0, 2] = flags[2, 3] = True
    rows = {
        "obs": obs,
        "next_obs": obs + 1,
        "actions": np.arange(6),
        "rewards": np.ones(6, np.float32),
        "terminated": flags[0],
        "truncated": flags[1],
        "skipped": flags[2],
    }
    first, second = episodes_of(rows, first=0, num_envs=1)
    assert first.observations[:, 0].tolist() == [0, 1, 2, 3]  # type: ignore[call-overload]
    assert first.whole
    assert second.actions.tolist() == [4, 5]
    assert not second.whole


def test_a_run_without_replay_is_refused(tmp_path: Path) -> None:
    result = train(
        {"algo": "random", "output_dir": str(tmp_path)}, total_timesteps=64, training={"num_eval_episodes": 0}
    )
    with pytest.raises(DatasetError, match="has no replay buffer"):
        open_dataset(f"run:{result.run_dir}")
