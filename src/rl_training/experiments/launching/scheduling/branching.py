"""Branches of runs: a copy of a run with another name and config, which goes on from its last checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.yaml_reader import dump_mapping
from rl_training.runs.description import SEAL, public_sha256, timestamp
from rl_training.runs.directory import RunDir
from rl_training.runs.names import readable_errors
from rl_training.runs.stored_config import seal_config
from rl_training.system.atomic_io import atomic_write, fsync_dir, temporary_path

BRANCHED = "branched"
"""Field of `run.json`: the run has the checkpoints of another config, which its first resume accepts."""


def branch_run(source: RunDir, name: str, config: Mapping[str, Any], seed: int, group: str) -> RunDir:
    """A run `name` beside `source` with its checkpoints and logs and the given config; `source` must not be running."""
    target = source.path.parent / name
    public = {**config, "seed": seed}
    with source.lock(), readable_errors(f"cannot branch run '{source.path}'"):
        step = CheckpointManager(source.path).latest_step()
        temporary = temporary_path(source.path.parent)
        try:
            shutil.copytree(source.path, temporary, symlinks=True, ignore=shutil.ignore_patterns(".lock", "videos"))
            for folder in ("videos", "plots", "debug"):
                (temporary / folder).mkdir(exist_ok=True)
            atomic_write(temporary / "configs" / "resolved.yaml", dump_mapping(public).encode())
            info = {
                **source.info(),
                "id": name,
                "config_sha256": public_sha256(public),
                "metrics_sha256": None,
                SEAL: seal_config("run", name, public),
                "group": group,
                "parent": f"{source.path.name}:{step}",
                "started": timestamp(),
                "status": "stopped",
                BRANCHED: True,
            }
            atomic_write(temporary / "run.json", json.dumps(info, indent=2).encode() + b"\n")
            os.rename(temporary, target)
            fsync_dir(target.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return RunDir(Path(target))
