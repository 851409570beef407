"""Drawing without a screen: which library MuJoCo uses, and images as observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.config.schema import EnvConfig, WrapperConfig
from rl_training.envs import make_env, replay_difference
from rl_training.envs.preprocessing.rendering import prepare_rendering
from rl_training.types import ConfigError


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")  # noted, so that it is as before behind the test
        monkeypatch.delenv(name)
    monkeypatch.setattr("sys.platform", "linux")
    return monkeypatch


def chosen(patch: pytest.MonkeyPatch, *installed: str) -> str | None:
    import os

    def load(name: str) -> object:
        if name not in installed:
            raise OSError(name)
        return object()

    patch.setattr("ctypes.CDLL", load)
    prepare_rendering()
    return os.environ.get("MUJOCO_GL")


def test_a_library_that_is_installed_is_chosen(no_choice: pytest.MonkeyPatch) -> None:
    assert chosen(no_choice) is None
    assert chosen(no_choice, "libOSMesa.so.8") == "osmesa"
    no_choice.delenv("MUJOCO_GL")
    assert chosen(no_choice, "libOSMesa.so.8", "libEGL.so.1") == "egl"


def test_a_choice_or_a_screen_stands(no_choice: pytest.MonkeyPatch) -> None:
    no_choice.setenv("MUJOCO_GL", "glfw")
    assert chosen(no_choice, "libEGL.so.1") == "glfw"
    no_choice.delenv("MUJOCO_GL")
    no_choice.setenv("DISPLAY", ":0")
    assert chosen(no_choice, "libEGL.so.1") is None


@pytest.mark.parametrize("env_id", ["dm_control/cartpole-balance-v0", "InvertedPendulum-v5", "CartPole-v1"])
def test_images_in_place_of_the_state(env_id: str) -> None:
    env = make_env(env_id, EnvConfig(wrappers=(WrapperConfig("pixels", {"size": 24}),)))
    obs, _ = env.reset()
    action: Any = env.action_space.sample()
    moved = env.step(action)[0]
    assert env.observation_space.contains(obs)
    assert obs.std() > 0
    assert (moved != obs).any() or np.count_nonzero(moved)
    env.close()


def test_images_beside_the_state() -> None:
    env = make_env("dm_control/cartpole-balance-v0", EnvConfig(wrappers=(WrapperConfig("pixels", {"state": True}),)))
    obs, _ = env.reset()
    assert {key: leaf.shape for key, leaf in obs.items()} == {"position": (3,), "velocity": (2,), "pixels": (84, 84, 3)}
    env.close()


@pytest.mark.parametrize(
    ("env_id", "wrappers", "per_second"),
    [
        ("dm_control/cartpole-balance-v0", (), 100.0),
        ("dm_control/cartpole-balance-v0", (WrapperConfig("action_repeat", {"times": 4}),), 25.0),
        ("dm_control/point_mass-easy-v0", (), 50.0),
        ("CartPole-v1", (WrapperConfig("action_repeat", {"times": 2}),), 25.0),
    ],
)
def test_films_play_as_fast_as_the_task(env_id: str, wrappers: tuple[WrapperConfig, ...], per_second: float) -> None:
    env = make_env(env_id, EnvConfig(wrappers=wrappers))
    assert env.metadata["render_fps"] == pytest.approx(per_second)
    env.close()


def test_an_environment_that_does_not_draw_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes no 'render_mode'"):
        make_env("RLProbe/TwoArms-v0", EnvConfig(wrappers=(WrapperConfig("pixels"),)))


@pytest.mark.slow
def test_images_replay() -> None:
    def make() -> Any:
        return make_env("dm_control/cartpole-balance-v0", EnvConfig(wrappers=(WrapperConfig("pixels", {"size": 24}),)))

    assert replay_difference(make, cuts=2, steps=15) is None
