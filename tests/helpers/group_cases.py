"""Small groups: one trained in this process, and an environment whose secret must not leak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import rl_training
from rl_training.config.loading import parse_config
from rl_training.experiments.launching.groups import SeedGroup

TINY: dict[str, Any] = {
    "algo": "ppo",
    "env_id": "CartPole-v1",
    "env": {"num_envs": 2},
    "hparams": {"num_steps": 16, "num_epochs": 1},
    "training": {"total_timesteps": 96, "eval_frequency": 32, "num_eval_episodes": 2},
    "logging": {"tensorboard": False, "terminal": False},
}


def tiny(folder: Path, **fields: Any) -> dict[str, Any]:
    return {**TINY, "output_dir": str(folder), **fields}


def new_group(folder: Path, seeds: Sequence[int] = (1, 2, 3), **fields: Any) -> SeedGroup:
    """A group that nobody has started."""
    return SeedGroup.create(parse_config(tiny(folder, **fields)), seeds, argv=["rl", "train", "--seed", "1,2,3"])


def train_members(group: SeedGroup, seeds: Sequence[int]) -> SeedGroup:
    """Train some members as their processes would, but in this one."""
    for seed in seeds:
        rl_training.train(replace(group.config(), seed=seed), group=group.info.id)
    group.observe()
    group.save()
    return group
