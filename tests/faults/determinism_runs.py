"""Program: train a few small runs and print their hashes as JSON, for a parent that changes what surrounds them.

    python determinism_runs.py OUTPUT_DIR [NAME ...] [--terminal]

Each run stresses what could leak in from outside: wide matrices (the threads of BLAS), dictionaries (the order of
hashes), normalisers, continuous actions.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.trainer import train

PARTS = ("policy", "algorithm", "collector", "env")
WIDE = {"hidden_dims": [384, 256]}
RUNS: dict[str, dict[str, Any]] = {
    "wide": {
        "algo": "ppo",
        "env_id": "Pendulum-v1",
        "env": {"num_envs": 64, "normalize_obs": True, "normalize_reward": True},
        "hparams": {"num_steps": 4, "num_epochs": 1, "num_minibatches": 2},
        "network": {"actor": WIDE, "critic": WIDE},
        "training": {"total_timesteps": 512},
    },
    "dict": {
        "algo": "a2c",
        "env_id": "RLProbe/DictObs-v0",
        "env": {"num_envs": 4, "normalize_obs": True},
        "hparams": {"num_steps": 8},
        "training": {"total_timesteps": 256},
    },
    "cartpole": {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "env": {"num_envs": 4, "normalize_obs": True, "normalize_reward": True},
        "hparams": {"num_steps": 16, "num_epochs": 2},
        "training": {"total_timesteps": 256},
    },
}


def final_hash(run: Path) -> str:
    """Policy, algorithm (optimiser, statistics, streams), collector and environments at the end of a run."""
    parts = CheckpointManager(run).load_latest().parts
    digest = hashlib.sha256()

    def add(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                add(value[key], f"{path}/{key}")
        elif isinstance(value, np.ndarray):
            digest.update(f"{path}{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        else:
            digest.update(f"{path}{value!r}".encode())

    add({name: parts[name] for name in PARTS}, "")
    return digest.hexdigest()


def mapping(name: str, output_dir: Path | str, **sections: Any) -> dict[str, Any]:
    """The config of a run; `sections` are merged into its own."""
    quiet = {
        "seed": 11,
        "output_dir": str(output_dir),
        "logging": {"terminal": False, "tensorboard": False},
        "training": {"num_eval_episodes": 0, "checkpoint_frequency": 0},
    }
    merged: dict[str, Any] = {}
    for layer in (quiet, RUNS[name], sections):
        for key, value in layer.items():
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def main(words: list[str]) -> None:
    terminal = "--terminal" in words
    output_dir, *names = [word for word in words if word != "--terminal"]
    hashes = {}
    for name in names or RUNS:
        logging = {"terminal": terminal}
        hashes[name] = final_hash(train(mapping(name, output_dir, logging=logging)).run_dir)
    Path(output_dir, "hashes.json").write_text(json.dumps(hashes))


if __name__ == "__main__":
    main(sys.argv[1:])
