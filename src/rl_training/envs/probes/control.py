"""Probe environments without memory or goals, each for one thing that an algorithm can get wrong."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.types import Array, ConfigError, EnvError

Step = tuple[Any, float, bool, bool, dict[str, Any]]
Reset = tuple[Any, dict[str, Any]]


def vector(*values: float) -> Array:
    return np.array(values, np.float32)


def one_hot(index: int, size: int) -> Array:
    vector = np.zeros(size, np.float32)
    vector[index] = 1.0
    return vector


def real(size: int, bound: float = 1.0) -> spaces.Box:
    return spaces.Box(-bound, bound, (size,), np.float32)


# -- values -----------------------------------------------------------------------------------------------------------


class ConstantReward(gym.Env[Any, Any]):
    """One step, reward 1."""

    def __init__(self) -> None:
        self.observation_space = real(1)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        return vector(0), {}

    def step(self, action: Any) -> Step:
        return vector(0), 1.0, True, False, {}


class RewardIsObs(ConstantReward):
    """One step, reward = the observation, which is -1 or 1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        return vector(self.sign), {}

    def step(self, action: Any) -> Step:
        return vector(self.sign), self.sign, True, False, {}


class Chain(gym.Env[Any, Any]):
    """`length` states in a row, regardless of the action; reward 1 on leaving the last. One-hot observations."""

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.observation_space = spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.position = 0
        return one_hot(0, self.length), {}

    def step(self, action: Any) -> Step:
        ended = self.position == self.length - 1
        self.position = min(self.position + 1, self.length - 1)
        return one_hot(self.position, self.length), float(ended), ended, False, {}


class OneState(ConstantReward):
    """One state, reward 1 per step; only a time limit ends an episode."""

    def step(self, action: Any) -> Step:
        return vector(0), 1.0, False, False, {}


class Counting(gym.Env[Any, Any]):
    """The observation counts 0, 1, 2, 3; the reward is the new count; `end` says how the episode ends at 3."""

    def __init__(self, end: Literal["terminated", "truncated"] = "terminated") -> None:
        if end not in ("terminated", "truncated"):
            raise ConfigError(f"env.kwargs.end must be 'terminated' or 'truncated', not {end!r}")
        self.end = end
        self.observation_space = spaces.Box(0.0, 3.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.count = 0
        return vector(0), {"count": 0}

    def step(self, action: Any) -> Step:
        self.count += 1
        ended = self.count == 3
        flags = (ended, False) if self.end == "terminated" else (False, ended)
        return vector(self.count), float(self.count), *flags, {"count": self.count}


# -- discrete control -------------------------------------------------------------------------------------------------


class TwoArms(ConstantReward):
    """One step, reward = the action, 0 or 1."""

    def step(self, action: Any) -> Step:
        return vector(0), float(action), True, False, {}


class ObsTimesAction(RewardIsObs):
    """One step: action 1 is right where the observation is 1, action 0 where it is -1. Reward 1 or -1."""

    def step(self, action: Any) -> Step:
        return vector(self.sign), self.sign * (2.0 * float(action) - 1.0), True, False, {}


class StaySwitch(gym.Env[Any, Any]):
    """Two states, no end: staying (action 0) gives 1 in the first and 2 in the second, switching gives nothing."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(2))
        return one_hot(self.state, 2), {}

    def step(self, action: Any) -> Step:
        reward = 0.0 if action else 1.0 + self.state
        self.state = 1 - self.state if action else self.state
        return one_hot(self.state, 2), reward, False, False, {}


class MaskedArms(gym.Env[Any, Any]):
    """One step, three arms that pay 0, 0.5 and 1; in half of the episodes the mask forbids the best one.

    Only the mask tells which episodes these are. A forbidden action raises EnvError.
    """

    def __init__(self) -> None:
        self.observation_space = real(1)
        self.action_space = spaces.Discrete(3)

    def action_masks(self) -> Array:
        return np.array([1, 1, self.best_allowed], np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.best_allowed = int(self.np_random.integers(2))
        return vector(0), {}

    def step(self, action: Any) -> Step:
        if not self.action_masks()[action]:
            raise EnvError(f"the masked action {action} was taken")
        return vector(0), 0.5 * float(action), True, False, {}


class Combination(ConstantReward):
    """One step, several choices at once: the reward is the share of them that match `target`."""

    def __init__(self, target: tuple[int, ...] = (1, 2), nvec: tuple[int, ...] | None = (2, 3)) -> None:
        super().__init__()
        self.target = np.array(target)
        self.action_space = spaces.MultiBinary(len(target)) if nvec is None else spaces.MultiDiscrete(list(nvec))

    def step(self, action: Any) -> Step:
        return vector(0), float(np.mean(np.asarray(action) == self.target)), True, False, {}


class DictObs(gym.Env[Any, Any]):
    """One step, four actions; the right one, 2 x colour + (sign > 0), needs both parts of the observation."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"colour": spaces.Discrete(2), "sign": real(1)})
        self.action_space = spaces.Discrete(4)

    def _obs(self) -> dict[str, Any]:
        return {"colour": np.int64(self.colour), "sign": vector(self.sign)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.colour = int(self.np_random.integers(2))
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        return self._obs(), {}

    def step(self, action: Any) -> Step:
        return self._obs(), float(int(action) == 2 * self.colour + (self.sign > 0)), True, False, {}


class HiddenCue(gym.Env[Any, Any]):
    """One step: reward = the cue (-1 or 1), plus 1 for the action that matches it. Dict observations.

    For `network.critic_only`: an actor that does not see the observation called `key` cannot do better than match by
    chance, and a critic that sees it knows the value, 0.5 + cue, up to what the actor does. Where it is `continuous`,
    an action between -1 and 1 matches by (1 + action x cue) / 2.
    """

    def __init__(self, key: str = "cue", continuous: bool = False) -> None:
        self.key, self.continuous = key, continuous
        self.observation_space = spaces.Dict({"obs": real(1), key: real(1)})
        self.action_space = real(1) if continuous else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.cue = float(self.np_random.choice([-1.0, 1.0]))
        return self._obs(), {}

    def step(self, action: Any) -> Step:
        match = 0.5 + 0.5 * float(action[0]) * self.cue if self.continuous else float(int(action) == (self.cue > 0))
        return self._obs(), self.cue + match, True, False, {}

    def _obs(self) -> dict[str, Array]:
        return {"obs": vector(0), self.key: vector(self.cue)}


# -- continuous control -----------------------------------------------------------------------------------------------


class Target(gym.Env[Any, Any]):
    """One step: the best action is half the observation; reward = minus the squared distance to it."""

    def __init__(self) -> None:
        self.observation_space = real(1)
        self.action_space = real(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.obs = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self.obs.copy(), {}

    def step(self, action: Any) -> Step:
        return self.obs.copy(), -float((action[0] - 0.5 * self.obs[0]) ** 2), True, False, {}


class LinearQuadratic(gym.Env[Any, Any]):
    """x' = x + u, reward -(x^2 + u^2), from x in [-1, 1], until a time limit."""

    def __init__(self) -> None:
        self.observation_space = real(1, np.inf)
        self.action_space = real(1, 2.0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.x = float(self.np_random.uniform(-1.0, 1.0))
        return vector(self.x), {}

    def step(self, action: Any) -> Step:
        u = float(action[0])
        reward = -(self.x**2 + u**2)
        self.x += u
        return vector(self.x), reward, False, False, {}
