"""Contestant: this package's offline updates.

python benchmarks/offline_ours.py '{"algo": "td3_bc", "backend": "jax", "widths": [256, 256], "seconds": 8}'
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
from offline_work import ACTIONS, BATCHES, NUM_SAMPLED, OBS, summary, work

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import parse_config
from rl_training.data.datasets.dataset import joined
from rl_training.data.datasets.flat_files import episodes_of
from rl_training.data.datasets.info import DatasetInfo
from rl_training.data.datasets.native import write_native
from rl_training.training.offline.trainer import OfflineTrainer
from rl_training.types import BoxSpec


def dataset_of(folder: Path) -> Path:
    """The work as a native dataset."""
    wide, unit = np.full(OBS, np.inf, np.float32), np.ones(ACTIONS, np.float32)
    spaces = BoxSpec(-wide, wide, wide.dtype), BoxSpec(-unit, unit, unit.dtype)
    return write_native(joined(DatasetInfo("Work-v0", spaces), list(episodes_of(work()))), folder / "work")


def main(algo: str, backend: str, widths: list[int], seconds: float) -> None:
    layers: dict[str, Any] = {"hidden_dims": widths, "activation": "relu"}
    hparams: dict[str, Any] = {"batch_size": BATCHES[algo]}
    if algo == "cql":
        hparams["num_sampled"] = NUM_SAMPLED
    with tempfile.TemporaryDirectory() as folder:
        cfg = parse_config(
            {
                "algo": algo,
                "backend": backend,
                "env_id": "Work-v0",
                "dataset": {"path": str(dataset_of(Path(folder)))},
                "hparams": hparams,
                "network": {"actor": layers, "critic": layers},
                "training": {"num_eval_episodes": 0, "total_updates": 10**9},
            }
        )
        with pinned_threads(1, backend):
            trainer = cast(OfflineTrainer, build_trainer(cfg))
            block = 16 if algo == "cql" else 256
            trainer.train_step(block)  # compiles, warms up
            trainer.train_step(block)
            updates, began = 0, time.process_time()
            while time.process_time() - began < seconds:
                trainer.train_step(block)
                updates += block
            spent = time.process_time() - began
    print(json.dumps(summary(algo, widths, updates, spent)))


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    main(settings["algo"], settings["backend"], settings["widths"], settings["seconds"])
