"""The recipe of a run: its config without the seed, labels and places. Runs of one recipe differ in their seed alone.

Plots and tables merge such runs by default. `config_sha256` cannot serve for that: it covers the seed and the name too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

LEFT_OUT = frozenset(
    {
        "seed",
        "name",
        "tags",
        "output_dir",
        "base",
        "version",
        "device",
        "strict_device",
        "env.num_workers",
        "env.step_timeout",
        "env.worker_restart",
        "env.runners",
        "executor",
        "training.num_threads",
        "training.checkpoint_frequency",
        "checkpoint",
        "logging",
        "monitor",
    }
)
"""Fields that are no part of a recipe: the seed, labels, and how and where the run is executed, saved and logged."""


def recipe_sha256(config: Mapping[str, Any]) -> str | None:
    """Hash of the recipe of a resolved config; None for an empty one, which means that it could not be read.

    >>> recipe_sha256({"algo": "ppo", "seed": 1}) == recipe_sha256({"algo": "ppo", "seed": 2, "name": "b"})
    True
    """
    if not config:
        return None
    return hashlib.sha256(json.dumps(_kept(config, ""), sort_keys=True, default=str).encode()).hexdigest()


def _kept(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if path in LEFT_OUT:
            continue
        if path == "env.vectorization" and value == "async":
            value = "sync"  # both give the same run
        kept[str(key)] = _kept(value, f"{path}.") if isinstance(value, Mapping) else value
    return kept
