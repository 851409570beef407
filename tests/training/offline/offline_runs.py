"""Short offline runs on Pendulum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rl_training import train

SMALL = {"actor": {"hidden_dims": [32, 32]}, "critic": {"hidden_dims": [32, 32]}}


TINY: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("bc", "td3_bc", "iql", "rebrac", "awac")},
    "cql": {"num_sampled": 2},
    "dt": {"warmup_updates": 10},
}
"""Every offline algorithm, with what makes it quick beside a small batch."""


def offline(algo: str, dataset: Path, output_dir: Path, **fields: Any) -> Any:
    cfg = {"algo": algo, "env_id": "Pendulum-v1", "output_dir": str(output_dir), "dataset": {"path": str(dataset)}}
    sections: dict[str, Any] = {"network": SMALL, "training": {"total_updates": 600, "num_eval_episodes": 1}}
    return train(cfg, **{**sections, **fields})


def assert_same(one: Any, other: Any, where: str) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, np.ndarray):
        assert one.tobytes() == other.tobytes(), where
    else:
        assert one == other, where
