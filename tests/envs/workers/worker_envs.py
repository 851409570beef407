"""Environments for the worker tests; a module of its own, so that worker processes import nothing else."""

from __future__ import annotations

import copy
import ctypes
import os
import signal
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.episode_log import EpisodeLog
from rl_training.types import ConfigError, EnvError

FAULTS = ("raise", "sys.exit", "os._exit", "segfault", "sigkill", "sigstop", "hang", "bad_obs", "bad_info")


def commit(fault: str) -> None:
    """Fail in the named way."""
    if fault == "raise":
        raise ZeroDivisionError("the physics blew up")
    if fault == "sys.exit":
        sys.exit(3)
    if fault == "os._exit":
        os._exit(4)
    if fault == "segfault":
        ctypes.string_at(0)
    if fault == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "sigstop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "sleep":
        time.sleep(0.5)
    while fault == "hang":
        time.sleep(0.01)


class UnspeakableError(Exception):
    """An error whose `__str__` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def refuse_to_be_made() -> Any:
    raise RuntimeError("not here")


class Unreadable:
    """Can be pickled, but raises when it is unpickled."""

    def __reduce__(self) -> Any:
        return refuse_to_be_made, ()


class StubbornError(EnvError):
    """Can be pickled, but its constructor does not take the pickled arguments."""

    def __init__(self, text: str, *, level: int) -> None:
        super().__init__(f"{text} {level}")


class LoudEnv(gym.Env[Any, Any]):
    """Raises the error that `words` names, at `when`: built, reset or step."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, words: str = "long", when: str = "step") -> None:
        self.words, self.when = words, when
        self._speak("built")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._speak("reset")
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._speak("step")
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def _speak(self, when: str) -> None:
        if when != self.when:
            return
        if self.words == "long":
            raise ValueError("too much: " + "m" * 50_000_000)
        if self.words == "long of ours":
            raise EnvError("too much: " + "m" * 50_000_000)
        if self.words == "odd":
            raise ValueError("bell \a, escape \x1b[31m, half \udc80, nothing \0")
        if self.words == "none":
            raise UnspeakableError
        if self.words == "exit":
            sys.exit("x" * 50_000_000)
        raise StubbornError("no such level", level=7)


class FaultEnv(gym.Env[Any, Any]):
    """Counts its steps and ends after `length` of them; action 0 is harmless, action i commits FAULTS[i - 1]."""

    observation_space = spaces.Box(0.0, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(len(FAULTS) + 1)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"

    def __init__(self, length: int = 10, built: str = "") -> None:
        self.length = length
        self.t = 0
        self.start = 0.0
        commit(built)
        if built == "config":
            raise ConfigError("there is no such level")

    def _obs(self) -> Any:
        return np.array([self.start, self.t], np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        commit((options or {}).get("fault", ""))
        self.t = 0
        self.start = self.np_random.random()
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        fault = ("", *FAULTS)[int(action)]
        commit(fault)
        self.t += 1
        obs = np.zeros(3) if fault == "bad_obs" else self._obs()
        info = {"generator": (x for x in ())} if fault == "bad_info" else {}
        return obs, float(self.t), False, self.t == self.length, info

    def render(self) -> Any:
        return np.full((4, 4, 3), self.t, np.uint8)

    def unreadable(self) -> Any:
        return Unreadable()

    def process(self) -> tuple[int, bool]:
        """The process id, and whether torch is loaded there."""
        return os.getpid(), "torch" in sys.modules


class InfoEnv(gym.Env[Any, Any]):
    """Dict observations, every kind of info now and then, and random ends."""

    observation_space = spaces.Dict(
        {
            "position": spaces.Box(-1.0, 1.0, (3,), np.float32),
            "pixels": spaces.Box(0, 255, (2, 3), np.uint8),
            "phase": spaces.Discrete(4),
            "choice": spaces.MultiDiscrete([3, 5]),
            "flags": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _obs(self) -> dict[str, Any]:
        rng = self.np_random
        return {
            "position": rng.uniform(-1, 1, 3).astype(np.float32),
            "pixels": rng.integers(0, 256, (2, 3), np.uint8),
            "phase": np.int64(rng.integers(4)),
            "choice": rng.integers(0, [3, 5]),
            "flags": rng.integers(0, 2, 3, np.int8),
        }

    def _info(self) -> dict[str, Any]:
        rng = self.np_random
        every = {
            "int": int(rng.integers(9)),
            "float": float(rng.random()),
            "flag": bool(rng.integers(2)),
            "number": np.float32(rng.random()),
            "array": rng.random(2),
            "text": f"t{rng.integers(9)}",
            "nested": {"depth": int(rng.integers(9)), "deeper": {"x": float(rng.random())}},
        }
        return {key: value for key, value in every.items() if rng.random() < 0.3}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._obs(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(np.float64(action).sum()) + self.np_random.random()
        ends = self.np_random.random(2) < 0.1
        return self._obs(), reward, bool(ends[0]), bool(ends[1]), self._info()


class SameArrayEnv(gym.Env[Any, Any]):
    """Always returns the same array: counts 1, 2, 3 and ends; its reset writes 0 into that array."""

    observation_space = spaces.Box(0.0, 3.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.obs = np.zeros(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.obs[0] = 0
        return self.obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.obs += 1
        return self.obs, float(self.obs[0]), bool(self.obs[0] == 3), False, {}


class SpaceEnv(gym.Env[Any, Any]):
    """Random observations of any space; the info repeats the action as the environment received it."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space = copy.deepcopy(observation_space)  # its generator is this environment's own
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {"action": repr(action)}


class SleepEnv(FaultEnv):
    """A step takes 0.2 s; its info says when that was."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        began = time.monotonic()
        time.sleep(0.2)
        *result, _ = super().step(action)
        return *result, {"began": began, "ended": time.monotonic()}


class Make:
    """Builds environment `index`, with its EpisodeLog."""

    def __init__(self, cls: Any, index: int, seed: int = 7, log: bool = True, **kwargs: Any) -> None:
        self.cls, self.index, self.seed, self.log, self.kwargs = cls, index, seed, log, kwargs

    def __call__(self) -> gym.Env[Any, Any]:
        env = self.cls(**self.kwargs)
        return EpisodeLog(env, seed=self.seed, index=self.index) if self.log else env
