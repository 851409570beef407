"""Data-parallel runs for tests: started by torchrun as a user would, and compared bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.state_tree import flatten
from rl_training.runs.directory import RunDir

SMALL = {"hidden_dims": [16, 16]}
BASES: dict[str, dict[str, Any]] = {
    "ppo": {
        "env_id": "CartPole-v1",
        "env": {"num_envs": 8, "normalize_obs": True, "normalize_reward": True},
        "hparams": {"num_steps": 32, "num_epochs": 2, "target_kl": 0.02},
    },
    "a2c": {"env_id": "CartPole-v1", "env": {"num_envs": 8}, "hparams": {"normalize_advantage": True}},
    "dqn": {
        "env_id": "CartPole-v1",
        "env": {"num_envs": 4},
        "hparams": {
            "learning_starts": 128,
            "batch_size": 16,
            "updates_per_step": 0.25,
            "prioritized": True,
            "n_step": 2,
        },
        "buffer": {"size": 400},
    },
    "sac": {
        "env_id": "Pendulum-v1",
        "env": {"num_envs": 4, "normalize_obs": True, "normalize_reward": True},
        "hparams": {"learning_starts": 128, "batch_size": 32, "updates_per_step": 0.25},
        "network": {"actor": SMALL, "critic": SMALL},
    },
    "td3": {
        "env_id": "Pendulum-v1",
        "env": {"num_envs": 4},
        "hparams": {"learning_starts": 128, "batch_size": 32, "updates_per_step": 0.25},
        "network": {"actor": SMALL, "critic": SMALL},
    },
}
"""Configs with everything on that concerns the whole batch: normalisers, the limit of the KL divergence, priorities."""


def config(algo: str, *, steps: int, shards: int = 4, **sections: Any) -> dict[str, Any]:
    """A short run of an algorithm in shards; `sections` are merged into those of the base."""
    base = BASES[algo]
    training = {"total_timesteps": steps, "shards": shards, "num_eval_episodes": 2, "checkpoint_frequency": steps // 4}
    whole: dict[str, Any] = {
        "algo": algo,
        **base,
        "training": training,
        "logging": {"tensorboard": False, "terminal": False},
    }
    for name, section in sections.items():
        whole[name] = {**whole.get(name, {}), **section} if isinstance(section, dict) else section
    return whole


def written(folder: Path, cfg: dict[str, Any]) -> str:
    """The config as a file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(cfg))
    return "config.json"


def torchrun(words: list[str], ranks: int, folder: Path, *options: str) -> subprocess.Popen[str]:
    """`torchrun -m rl_training ...` (or a script) in the background, with processes of one thread each."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *options]
    target = words if words[0].endswith(".py") else ["-m", "rl_training", *words]
    return subprocess.Popen(
        [*start, *target],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def ended(process: subprocess.Popen[str], seconds: float = 1800) -> str:
    """What it printed; it must end with code 0."""
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its processes
        out, _ = process.communicate(timeout=60)
        raise AssertionError(f"still running after {seconds:g} s\n{out}") from None
    assert process.returncode == 0, out
    return out


def only_run(folder: Path) -> RunDir:
    """The one run below `folder`."""
    (run,) = [path.parent for path in folder.glob("runs/*/run.json")]
    return RunDir(run)


def digest(run: RunDir) -> tuple[str, str]:
    """SHA-256 of the metrics (without those of the clock), and of every array and number of the last checkpoint."""
    hashed = hashlib.sha256()
    parts = CheckpointManager(run.path).load("latest").parts
    for name in sorted(parts.keys() - {"logs"}):
        flat = flatten(without_rows(parts[name]))
        hashed.update(json.dumps([name, flat.scalars], sort_keys=True).encode())
        for path, array in sorted(flat.arrays.items()):
            hashed.update(f"{path} {array.dtype} {array.shape}".encode() + array.tobytes())
    return str(run.info()["metrics_sha256"]), hashed.hexdigest()


def without_rows(tree: Any) -> Any:
    """A state with the saved rows of replay buffers as plain arrays."""
    if isinstance(tree, dict):
        return {key: without_rows(value) for key, value in tree.items()}
    return {"start": tree.start, "stop": tree.stop, **tree.arrays()} if hasattr(tree, "copy_into") else tree
