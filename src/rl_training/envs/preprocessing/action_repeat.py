"""Repeats every action for some steps of the environment: the wrapper `action_repeat` of `env.wrappers`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from rl_training.envs.preprocessing.rendering import slower
from rl_training.envs.preprocessing.step_infos import ENV_FRAMES
from rl_training.envs.suites import Env
from rl_training.types import EnvError


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """`times` steps with one action, their rewards summed; it stops where the episode ends."""

    def __init__(self, env: Env, times: int) -> None:
        super().__init__(env)
        if times < 1:
            raise EnvError(f"wrapper 'action_repeat' needs times of at least 1, not {times}")
        self.times = times
        self.metadata = slower(env.metadata, times)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        total, taken = 0.0, 0
        while taken < self.times:
            obs, reward, terminated, truncated, info = self.env.step(action)
            taken += 1
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, {**info, ENV_FRAMES: taken}
