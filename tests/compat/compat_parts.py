"""Parts of a user's own, named by dotted path in the configs of old runs; the old package and today's both run them.

Only NumPy, Gymnasium and names that the package documents are used here; what needs torch or jax is in modules of its
own, so that a process imports no more than its runs need.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rl_training
from rl_training.data.rollout_buffer import RolloutBuffer


class Squares(gym.Env[Any, Any]):
    """A picture of 1 x 8 x 8 with a bright square on the left or on the right; the action says where. Five steps."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (1, 8, 8), np.uint8)
        self.action_space = spaces.Discrete(2)
        self.side = self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(int(action) == self.side)
        self.count += 1
        return self._picture(), reward, self.count == 5, False, {}

    def _picture(self) -> np.ndarray:
        self.side = int(self.np_random.integers(2))
        picture = self.np_random.integers(0, 32, (1, 8, 8)).astype(np.uint8)
        picture[0, 3:6, 1 + 4 * self.side : 4 + 4 * self.side] = 250
        return picture


class HalvedRewards(gym.RewardWrapper[Any, Any]):
    """A wrapper: half of every reward."""

    def reward(self, reward: Any) -> float:
        return 0.5 * float(reward)


class SignedRewards(RolloutBuffer):
    """A buffer: the learner sees the sign of every reward."""

    def as_batch(self) -> Any:
        batch = super().as_batch()
        return {**batch, "rewards": np.sign(batch["rewards"])}


class Tally(rl_training.Callback):
    """A callback with state: the sum of all env steps at which it was called, and how often that was."""

    def __init__(self, weight: int = 1) -> None:
        self.weight, self.calls, self.total = weight, 0, 0

    def on_step(self, trainer: Any, report: Any) -> None:
        self.calls += 1
        self.total += self.weight * trainer.progress.env_steps

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls, "total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls, self.total = state["calls"], state["total"]


class Highest:
    """A logger with state: the best return of an evaluation."""

    def __init__(self) -> None:
        self.best = float("-inf")

    def log(self, row: Any) -> None: ...

    def log_eval(self, row: Any) -> None:
        self.best = max(self.best, row["return_mean"])

    def close(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = state["best"]


def long_run(row: Any, memory: Any, *, limit: int) -> str | None:
    """An alert rule: the run has gone on for longer than `limit` env steps."""
    return f"more than {limit} env steps" if row["env_steps"] > limit else None
