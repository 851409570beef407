"""BaseEnvironment and BaseWrapper: optional bases for an environment and a wrapper of your own.

Both are plain Gymnasium classes; nothing in the package asks for them. Any `gymnasium.Env` or `gymnasium.Wrapper` works
as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gymnasium as gym

from rl_training.envs.check_env import EnvReport, check_env
from rl_training.envs.suites import Env, Strategy


class BaseEnvironment(gym.Env[Any, Any], ABC):
    """An environment of your own: set `observation_space` and `action_space`, write `reset` and `step`.

    Draw random numbers from `self.np_random`, which `super().reset(seed=seed)` seeds: a run can then be resumed exactly
    by replaying the actions of its open episode.
    """

    resume_strategy: Strategy = "replay"
    """Set it to "restart" where an episode cannot be replayed; a resumed run then starts a new one, and says so."""

    @abstractmethod
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode: call `super().reset(seed=seed)` first, return (observation, info)."""
        return super().reset(seed=seed, options=options)

    @abstractmethod
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step: return (observation, reward, terminated, truncated, info)."""

    def check(self, *, seed: int = 0) -> EnvReport:
        """What `check_env` finds in this environment, as a report of errors and warnings."""
        return check_env(self, seed=seed)


class BaseWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper of your own: override `observation`, `action` or `reward`, whichever it changes.

    Set `self.observation_space` or `self.action_space` in `__init__` where they change too.
    """

    resume_strategy: Strategy = "replay"
    """Set it to "restart" where the wrapper keeps something from one episode to the next."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)

    def observation(self, obs: Any) -> Any:
        """The observation that the agent sees."""
        return obs

    def action(self, action: Any) -> Any:
        """The action that the environment receives."""
        return action

    def reward(self, reward: float) -> float:
        """The reward that the agent learns from."""
        return reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self.observation(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(self.action(action))
        return self.observation(obs), self.reward(float(reward)), terminated, truncated, info
