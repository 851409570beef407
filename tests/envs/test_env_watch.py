"""A slow environment in this process is named in one line: constructor, reset or step."""

from __future__ import annotations

import threading
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.config.schema import EnvConfig
from rl_training.envs.factory import EnvThunk, make_env
from rl_training.envs.vector.sync import ResumableSyncVectorEnv
from rl_training.envs.watch import EnvWatch, stepping_for

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


def test_a_thread_that_steps_for_the_watched_one_is_watched_too(capfd: pytest.CaptureFixture[str]) -> None:
    """With overlapped collection the environments are stepped in a thread of their own."""
    vector = ResumableSyncVectorEnv([EnvThunk(SlowEnv, EnvConfig(kwargs={"slow": "step"}), index=0)])
    vector.reset()
    watched = threading.get_ident()

    def collect() -> None:
        with stepping_for(watched):
            vector.step(np.zeros(1, np.int64))

    for helps in (True, False):
        thread = threading.Thread(target=collect if helps else lambda: vector.step(np.zeros(1, np.int64)))
        with EnvWatch(SECONDS):
            thread.start()
            thread.join()
        lines = capfd.readouterr().err.splitlines()
        assert lines == (["environment 0 ('SlowEnv') has been in step() for 0 s"] if helps else [])
    vector.close()
