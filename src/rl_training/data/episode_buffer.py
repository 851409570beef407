"""Whole episodes, added step by step and read as arrays: for Monte Carlo methods and for inspecting behaviour."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from rl_training.data.storage import Tree
from rl_training.types import ConfigError, Obs

Episode = dict[str, Tree]
"""obs actions rewards terminated truncated, each (T, ...)."""


class EpisodeBuffer:
    """Steps of one environment, split into episodes at `done` and `truncated`.

    With `max_steps` the oldest finished episodes are dropped, whole, to make room; a single episode that is longer is
    refused. Without it everything is kept until `clear`.
    """

    def __init__(self, max_steps: int | None = None) -> None:
        if max_steps is not None and max_steps < 1:
            raise ConfigError(f"max_steps must be at least 1, not {max_steps}")
        self.max_steps = max_steps
        self._finished: deque[Episode] = deque()
        self._open: list[tuple[Any, ...]] = []
        self._length = 0

    def __len__(self) -> int:
        """Number of steps, those of the unfinished episode included."""
        return self._length

    def add_step(self, obs: Obs, action: Any, reward: float, done: bool, truncated: bool = False) -> None:
        """Copy in one step: the observation, the action taken there and its outcome. `done` means terminated."""
        self._make_room()
        copied = {key: np.array(leaf) for key, leaf in obs.items()} if isinstance(obs, dict) else np.array(obs)
        self._open.append((copied, np.array(action), float(reward), bool(done), bool(truncated)))
        self._length += 1
        if done or truncated:
            self._finished.append(_stack(self._open))
            self._open = []

    def get_episode(self) -> Episode:
        """The last finished episode, or the steps so far while none has finished."""
        if self._finished:
            return self._finished[-1]
        if not self._open:
            raise ValueError("the episode buffer is empty: add_step() before get_episode()")
        return _stack(self._open)

    def episodes(self) -> list[Episode]:
        """All finished episodes, oldest first."""
        return list(self._finished)

    def clear(self) -> None:
        """Remove everything, the unfinished episode included."""
        self._finished.clear()
        self._open = []
        self._length = 0

    def _make_room(self) -> None:
        if self.max_steps is None:
            return
        while self._length >= self.max_steps and self._finished:
            self._length -= len(self._finished.popleft()["rewards"])
        if self._length >= self.max_steps:
            raise ConfigError(
                f"one episode is longer than the {self.max_steps} steps this buffer may hold: raise max_steps, or cut "
                "episodes with env.max_episode_steps"
            )


def _stack(steps: list[tuple[Any, ...]]) -> Episode:
    obs, actions, rewards, terminated, truncated = zip(*steps, strict=True)
    stacked: Tree = (
        {key: np.stack([step[key] for step in obs]) for key in obs[0]} if isinstance(obs[0], dict) else np.stack(obs)
    )
    return {
        "obs": stacked,
        "actions": np.stack(actions),
        "rewards": np.array(rewards, np.float32),
        "terminated": np.array(terminated),
        "truncated": np.array(truncated),
    }
