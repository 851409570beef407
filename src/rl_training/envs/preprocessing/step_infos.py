"""Infos with which an environment gives the learner another reward or termination than the score counts.

The environment itself always gives the raw reward and the true end, so that returns, logs and evaluation are scores of
the task. What the learner is to see instead (a clipped reward, a lost life as a termination) travels in the infos, and
only the collector reads it, when it makes the transition that is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rl_training.types import Array

LEARNING_REWARD = "learning_reward"
"""The reward to learn from, where it differs from the raw one."""
LIFE_LOST = "life_lost"
"""True where the learner is to take this step for a termination although the episode goes on."""
ENV_FRAMES = "env_frames"
"""Frames of the emulator, or steps of the physics, that this step took."""


def learner_view(rewards: Array, terminated: Array, infos: dict[str, Any]) -> tuple[Array, Array]:
    """Rewards and terminations (N,) as the learner is to see them; the same arrays where the infos say nothing."""
    if not infos:  # most steps of most environments
        return rewards, terminated
    for rows in _with_final(infos):
        if LEARNING_REWARD in rows:
            rewards = np.where(rows[f"_{LEARNING_REWARD}"], rows[LEARNING_REWARD], rewards)
        if LIFE_LOST in rows:
            terminated = terminated | rows[LIFE_LOST]
    return rewards, terminated


def frames_of(infos: dict[str, Any]) -> int:
    """Frames that a step of all environments took; 0 where they do not report it."""
    if not infos:
        return 0
    return sum(int(np.sum(rows[ENV_FRAMES])) for rows in _with_final(infos) if ENV_FRAMES in rows)


def _with_final(infos: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The infos, and those of the rows whose episode ended and was followed by a reset in the same step."""
    yield infos
    if "final_info" in infos:
        yield infos["final_info"]
