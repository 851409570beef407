"""Repeats every action for some steps of the environment: the wrapper `action_repeat` of `env.wrappers`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from rl_training.envs.suites import Env
from rl_training.types import EnvError

FRAMES_INFO = "env_frames"
"""Key of the infos that says how many steps of the environment the episode has taken so far."""


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """`times` steps with one action, their rewards summed; it stops where the episode ends."""

    def __init__(self, env: Env, times: int) -> None:
        super().__init__(env)
        if times < 1:
            raise EnvError(f"wrapper 'action_repeat' needs times of at least 1, not {times}")
        self.times = times
        self.frames = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.frames = 0
        obs, info = self.env.reset(seed=seed, options=options)
        return obs, {**info, FRAMES_INFO: 0}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        total = 0.0
        for _ in range(self.times):
            obs, reward, terminated, truncated, info = self.env.step(action)
            self.frames += 1
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, {**info, FRAMES_INFO: self.frames}
