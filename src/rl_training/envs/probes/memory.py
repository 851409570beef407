"""Probe environments that need memory: the policy depends on an observation from earlier in the episode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces

from rl_training.envs.probes.control import Reset, Step, real, vector


class CueMemory(gym.Env[Any, Any]):
    """A cue (-1 or 1), `blanks` empty observations, then a query: reward 1 for the action that matches the cue.

    The observation is (cue, query). Without memory no policy gets more than 0.5 on average.
    """

    def __init__(self, blanks: int = 10) -> None:
        self.blanks = blanks
        self.observation_space = real(2)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.cue = int(self.np_random.integers(2))
        self.time = 0
        return vector(2 * self.cue - 1, 0), {}

    def step(self, action: Any) -> Step:
        ended = self.time == self.blanks + 1
        self.time += 1
        reward = float(ended and int(action) == self.cue)
        return vector(0, float(self.time > self.blanks)), reward, ended, False, {}


class RepeatPrevious(gym.Env[Any, Any]):
    """A symbol each step; reward 1/steps for naming the one of `k` steps before, -1/steps for another.

    The return of a perfect memory is 1, that of guessing among 4 symbols -0.5. Nothing is asked in the first k steps.
    """

    def __init__(self, k: int = 4, symbols: int = 4, steps: int = 48) -> None:
        self.k, self.symbols, self.steps = k, symbols, steps
        self.observation_space = spaces.Discrete(symbols)
        self.action_space = spaces.Discrete(symbols)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.shown = [int(self.np_random.integers(self.symbols))]
        return self.shown[-1], {}

    def step(self, action: Any) -> Step:
        asked = len(self.shown) - 1 - self.k
        reward = 0.0
        if asked >= 0:
            reward = (1.0 if int(action) == self.shown[asked] else -1.0) / self.steps
        ended = len(self.shown) == self.steps + self.k
        self.shown.append(int(self.np_random.integers(self.symbols)))
        return self.shown[-1], reward, ended, False, {}
