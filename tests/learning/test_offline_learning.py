"""What offline algorithms learn from mixed data: more than the policy that collected it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training import train
from rl_training.data.datasets.native import write_native

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
benchmark: Any = importlib.import_module("offline_sets")

LAYERS = {"hidden_dims": [64, 64], "activation": "relu"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_discrete_cql_is_above_imitation_on_mixed_data(seed: int, tmp_path: Path) -> None:
    """Most rows do the wrong thing, which imitation repeats; what they led to is known, and CQL learns from that."""
    folder = write_native(benchmark.mixed_cartpole()["mixed"], tmp_path / "mixed")
    common: dict[str, Any] = {"dataset": {"path": str(folder)}, "output_dir": str(tmp_path), "seed": seed}
    common |= {"network": {"actor": LAYERS, "critic": LAYERS}, "logging": {"terminal": False}}
    common["training"] = {"total_updates": 3000, "num_eval_episodes": 20, "eval_frequency": 0}
    cql = train({"algo": "cql", "hparams": {"learning_rate": 1e-3, "weight": 0.5}, **common})
    bc = train({"algo": "bc", **common})
    learnt, imitated = (run.metrics["eval/return_mean"] for run in (cql, bc))
    assert learnt > 150.0
    assert learnt > imitated + 50.0
