"""Small datasets by hand."""

from __future__ import annotations

import numpy as np

from rl_training.data.datasets.dataset import Dataset, Steps, joined
from rl_training.data.datasets.info import DatasetInfo
from rl_training.types import BoxSpec, DictSpec, DiscreteSpec

BOX = BoxSpec(np.full(2, -np.inf, np.float32), np.full(2, np.inf, np.float32), np.dtype(np.float32))
ACTION = BoxSpec(np.array([-2.0], np.float32), np.array([1.0], np.float32), np.dtype(np.float32))


def episode(length: int, first: float = 0.0, *, terminated: bool = True, whole: bool = True) -> Steps:
    """Observations count up from `first`, rewards are 1; the end is a termination or a truncation."""
    obs = np.repeat(first + np.arange(length + 1, dtype=np.float32)[:, None], 2, 1)
    end = np.arange(length) == length - 1
    actions = np.full((length, 1), 0.25, np.float32)
    return Steps(obs, actions, np.ones(length), end & terminated, end & (not terminated), seed=int(first), whole=whole)


def small_dataset(**changes: float) -> Dataset:
    """Three episodes of 3, 2 and 4 steps; the second is truncated, the third is open."""
    info = DatasetInfo("Small-v0", (BOX, ACTION), **{"ref_min": 0.0, "ref_max": 4.0, **changes})  # type: ignore[arg-type]
    parts = [episode(3, 10.0), episode(2, 20.0, terminated=False), episode(4, 30.0, terminated=False, whole=False)]
    parts[2].truncated[-1] = False
    return joined(info, parts)


def dict_dataset() -> Dataset:
    """One episode with an image and a "deep/key" observation, and discrete actions."""
    camera = BoxSpec(np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 255, np.uint8), np.dtype(np.uint8))
    spaces = DictSpec({"camera": camera, "deep/key": BOX}), DiscreteSpec(3)
    obs = {
        "camera": np.arange(5 * 12, dtype=np.uint8).reshape(5, 2, 2, 3),
        "deep/key": np.arange(10, dtype=np.float32).reshape(5, 2),
    }
    end = np.array([False, False, False, True])
    steps = Steps(obs, np.array([0, 1, 2, 1]), np.arange(4.0), end, ~end & end)
    return joined(DatasetInfo("Camera-v0", spaces), [steps])
