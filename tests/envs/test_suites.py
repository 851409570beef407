"""Environment families: listing, versions, built-in ids, resume strategies."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rl_training.config.schema import TrainConfig
from rl_training.envs import PROBES, list_envs, make_env, make_vector_env
from rl_training.envs.suites import SUITES, find_spec, is_built_in, suite_of
from rl_training.registry import environments
from rl_training.types import EnvError


def test_every_gymnasium_id_that_can_be_made_is_listed_once() -> None:
    listed = [env_id for suite in list_envs() for env_id in suite.ids]
    assert len(listed) == len(set(listed))
    by_name = {suite.name: suite.ids for suite in list_envs()}
    assert set(by_name["classic control"]) == {
        "Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1",
    }  # fmt: skip
    assert by_name["probes"] == tuple(sorted(PROBES))
    assert "HalfCheetah-v5" in by_name["mujoco"]
    assert not {"CartPole-v0", "HalfCheetah-v2", "HalfCheetah-v4", "GymV21Environment-v0"} & set(listed)


def test_suites_that_register_when_they_are_imported_are_listed_too() -> None:
    by_name = {suite.name: suite.ids for suite in list_envs()}
    assert {"ALE/Pong-v5", "PongNoFrameskip-v4"} <= set(by_name["atari"])
    assert {"MiniGrid-DoorKey-5x5-v0", "BabyAI-GoToLocal-v0"} <= set(by_name["minigrid"])
    assert "dm_control/cheetah-run-v0" in by_name["dm_control"]
    assert all(env_id.startswith("dm_control/") for env_id in by_name["dm_control"])
    assert "dm_control/compatibility-env-v0" not in by_name["dm_control"]


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "dm_control/cheetah-run-v0", "MiniGrid-Empty-5x5-v0", "Ant-v5"])
def test_environments_of_suites_are_built_in(env_id: str) -> None:
    assert is_built_in(find_spec(env_id))


def test_missing_libraries_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "Box2D" else object())
    missing = {suite.name: suite.missing_extra for suite in list_envs()}
    assert missing["box2d"] == "box2d"
    assert missing["mujoco"] is None


@pytest.mark.usefixtures("registrations")
def test_what_users_register_is_listed() -> None:
    environments.add("listed-pole", CartPoleEnv)
    gym.register("Listed/Clock-v0", Clock)
    try:
        registered = next(suite for suite in list_envs() if suite.name == "registered")
        assert {"listed-pole", "Listed/Clock-v0"} <= set(registered.ids)
    finally:
        gym.registry.pop("Listed/Clock-v0")


def test_every_probe_is_built_in() -> None:
    assert [probe_id for probe_id in PROBES if not is_built_in(gym.spec(probe_id))] == []


def test_extras_are_those_of_the_package() -> None:
    extras = {suite.extra for suite in SUITES if suite.extra} | {suite.render_extra for suite in SUITES}
    assert extras - {None} <= {"box2d", "mujoco", "atari", "dm-control", "minigrid", "multi-agent", "jax", "classic"}


def test_finding_a_spec_does_not_change_the_registry() -> None:
    spec = find_spec("CartPole-v1")
    assert not spec.order_enforce
    assert gym.spec("CartPole-v1").order_enforce
    suite = suite_of(spec)
    assert suite is not None
    assert suite.name == "classic control"


class Clock(gym.Env[Any, Any]):
    """A nondeterministic environment that declares it."""

    resume_strategy = "restart"
    calls = 0

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, np.inf, (1,), np.float64)
        self.action_space = spaces.Discrete(2)

    def _now(self) -> Any:
        type(self).calls += 1
        return np.array([type(self).calls], np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._now(), {}

    def step(self, action: Any) -> Any:
        return self._now(), 0.0, False, False, {}


def test_an_environment_that_declares_restart_resumes_inexactly_without_error() -> None:
    live: Any = make_vector_env(TrainConfig(), 2, env_fn=Clock)
    live.reset()
    live.step(np.zeros(2, np.int64))
    assert not live.exact
    resumed: Any = make_vector_env(TrainConfig(), 2, env_fn=Clock, state=live.state_dict())
    resumed.reset()


def test_a_spec_that_says_nondeterministic_restarts() -> None:
    gym.register("Listed/Noise-v0", CartPoleEnv, nondeterministic=True)
    try:
        env: Any = make_env("Listed/Noise-v0")
        assert not env.exact
    finally:
        gym.registry.pop("Listed/Noise-v0")


def test_a_wrong_strategy_is_refused() -> None:
    class Wrong(CartPoleEnv):
        resume_strategy = "maybe"

    with pytest.raises(EnvError, match=r"Wrong\.resume_strategy is 'maybe'; it must be 'replay' or 'restart'"):
        make_env(Wrong)
