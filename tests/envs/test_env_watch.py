"""A slow environment in this process is named in one line: constructor, reset or step."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.config.schema import EnvConfig
from rl_training.envs.calls import calls_under_way
from rl_training.envs.factory import EnvThunk, make_env
from rl_training.envs.vector.sync import ResumableSyncVectorEnv
from rl_training.envs.watch import EnvWatch

SECONDS = 0.2


class SlowEnv(gym.Env[Any, Any]):
    """Is slow in the call that `slow` names: built, reset or step."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, slow: str = "") -> None:
        self.slow = slow
        self._wait("built")

    def _wait(self, call: str) -> None:
        if call == self.slow:
            time.sleep(3 * SECONDS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._wait("reset")
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._wait("step")
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("slow", "words"), [("built", "its constructor"), ("reset", "reset()"), ("step", "step()"), ("", "")]
)
def test_the_line_names_environment_and_call(slow: str, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    with EnvWatch(SECONDS):
        thunks = [EnvThunk(SlowEnv, EnvConfig(kwargs={"slow": slow if i else ""}), index=i) for i in range(2)]
        vector = ResumableSyncVectorEnv(thunks)
        vector.reset()
        vector.step(np.zeros(2, np.int64))
        vector.close()
    lines = capfd.readouterr().err.splitlines()
    assert lines == ([f"environment 1 ('SlowEnv') has been in {words} for 0 s"] if slow else [])


def test_many_quick_calls_are_not_one_slow_one(capfd: pytest.CaptureFixture[str]) -> None:
    with EnvWatch(SECONDS):
        env = make_env(SlowEnv)
        env.reset()
        deadline = time.monotonic() + 3 * SECONDS
        while time.monotonic() < deadline:
            env.step(0)
    assert capfd.readouterr().err == ""


def test_other_threads_are_watched_too_and_a_call_is_reported_once(capfd: pytest.CaptureFixture[str]) -> None:
    """With overlapped collection the environments are stepped in a thread of their own; runs that share a process have
    a watchdog each."""
    vector = ResumableSyncVectorEnv([EnvThunk(SlowEnv, EnvConfig(kwargs={"slow": "step"}), index=0)])
    vector.reset()
    with EnvWatch(SECONDS), EnvWatch(SECONDS):
        thread = threading.Thread(target=lambda: vector.step(np.zeros(1, np.int64)))
        thread.start()
        thread.join()
    assert capfd.readouterr().err.splitlines() == ["environment 0 ('SlowEnv') has been in step() for 0 s"]
    vector.close()


def test_a_call_that_failed_is_over() -> None:
    class Failing(SlowEnv):
        def step(self, action: Any) -> Any:
            raise RuntimeError("broken")

    env = make_env(Failing)
    env.reset()
    with pytest.raises(RuntimeError, match="broken"):
        env.step(0)
    assert calls_under_way() == set()


def test_an_environment_that_is_gone_is_not_asked() -> None:
    env = make_env(SlowEnv)
    env.reset()
    known = weakref.ref(env)
    del env
    gc.collect()
    assert known() is None
    assert calls_under_way() == set()
