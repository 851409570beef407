"""Seeds of one program over two devices: the same bits as on one, from a cache on disk that tells them apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rl_training.runs.directory import metrics_sha256

CONFIG: dict[str, Any] = {
    "algo": "reinforce",
    "backend": "jax",
    "env_id": "CartPole-v1",
    "env": {"num_envs": 2},
    "hparams": {"num_steps": 16},
    "training": {
        "total_timesteps": 160,
        "num_eval_episodes": 2,
        "eval_lane": "compiled",
        "runs_per_program": 4,
    },
    "logging": {"tensorboard": False, "terminal": False},
}


def train_on(devices: int, folder: Path, config: Mapping[str, Any] = CONFIG) -> list[str]:
    """SHA-256 of the metrics of eight seeds, trained by a process with so many devices."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    words = ["train", "--config=config.json", "--seed=0..7", "--jobs=8"]
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-m", "rl_training", *words],
        cwd=folder,
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [metrics_sha256(run / "logs" / "metrics.jsonl") for run in sorted(folder.glob("runs/*seed*"))]


def programs() -> int:
    return len(list(Path(os.environ["XDG_CACHE_HOME"], "rl_training", "jax").glob("*.program")))


def test_eight_seeds_over_two_devices_are_those_of_one(tmp_path: Path) -> None:
    one, two = train_on(1, tmp_path / "one"), train_on(2, tmp_path / "two")
    assert len(set(one)) == 8
    assert one == two


@pytest.mark.slow
def test_programs_are_loaded_from_disk_for_every_device(tmp_path: Path) -> None:
    first, kept = train_on(2, tmp_path / "first"), programs()
    assert train_on(2, tmp_path / "again") == first
    assert programs() == kept


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_other_algorithms_too(algo: str, tmp_path: Path) -> None:
    hparams = {"num_steps": 16, "num_minibatches": 2} if algo == "ppo" else {"learning_starts": 32, "batch_size": 16}
    config = {**CONFIG, "algo": algo, "hparams": hparams, "buffer": {} if algo == "ppo" else {"size": 256}}
    assert train_on(1, tmp_path / "one", config) == train_on(2, tmp_path / "two", config)
