"""Finding and building JAX environments by name, and adapting them to Gymnasium."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.config.schema import EnvConfig, TrainConfig
from rl_training.envs import check_env, list_envs, make_env, make_vector_env, replay_is_exact
from rl_training.jax.envs import find, make
from rl_training.jax.envs.base import TimeLimit, box
from rl_training.jax.envs.gym_adapter import compiled_env
from rl_training.registry import environments
from rl_training.types import ConfigError, DiscreteSpec, EnvError

JAX_ONLY = ("RLJax/Catch-v0", "RLJax/DeepSea-v0", "RLJax/FourRooms-v0")


class Countdown(NamedTuple):
    left: jax.Array


class Launch:
    """A user's environment: `start` steps of reward 1 for waiting, then lift-off."""

    observation_space = box(0.0, 10.0, (1,))
    action_space = DiscreteSpec(2)
    max_episode_steps: int | None = None

    def __init__(self, start: int = 3) -> None:
        self.start = start

    def init(self, key: Any, n: int) -> Countdown:
        return Countdown(jnp.full(n, float(self.start)))

    def obs(self, state: Countdown) -> Any:
        return state.left[:, None]

    def step(self, state: Countdown, action: Any, key: Any) -> Any:
        left = state.left - 1
        return Countdown(left), (action == 0).astype(jnp.float32), left <= 0, jnp.zeros(len(left), bool)


class NoSpaces:
    init = obs = step = Launch.init


NAME = f"{__name__}:Launch"


def test_a_user_s_environment_by_dotted_name() -> None:
    env = make(NAME, {"start": 2})
    assert isinstance(env, Launch)
    state = env.init(jax.random.key(0), 3)
    state, rewards, terminated, _ = env.step(state, jnp.array([0, 1, 0]), jax.random.key(1))
    assert rewards.tolist() == [1.0, 0.0, 1.0]
    assert terminated.tolist() == [False] * 3
    assert env.step(state, jnp.zeros(3), jax.random.key(1))[2].all()


def test_a_limit_from_the_config_goes_around_any_environment() -> None:
    env = make(NAME, {"start": 9}, max_episode_steps=4)
    assert isinstance(env, TimeLimit)
    assert (env.max_episode_steps, make("CartPole-v1", max_episode_steps=7).max_episode_steps) == (4, 7)


def test_find_tells_jax_environments_from_gymnasium_s() -> None:
    assert find("CartPole-v1") is not None
    assert find("RLJax/Catch-v0") is not None
    assert find(NAME) is not None
    assert find("LunarLander-v3") is None
    assert find("gymnasium.envs.classic_control.cartpole:CartPoleEnv") is None
    assert find("some_package:Env-v0") is None  # Gymnasium's spelling of "import this first"


def test_a_registered_class_is_found() -> None:
    with environments.override("launch", Launch):
        assert isinstance(make("launch"), Launch)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("LunarLander-v3", {}, "'LunarLander-v3' has no form in JAX.*lane: host"),
        ("CartPole-v2", {}, "did you mean 'CartPole-v1'"),
        ("Pendulum-v1", {"gravity": 9.8}, "env.kwargs: environment 'Pendulum-v1' takes no 'gravity'.*it takes: g"),
        ("Acrobot-v1", {"g": 9.8}, "takes no 'g' .it takes: none"),
        ("RLProbe/Counting-v0", {"end": "never"}, "end must be 'terminated' or 'truncated'"),
        (f"{__name__}:NoSpaces", {}, "has no observation_space; the compiled lane needs it"),
        (f"{__name__}:Missing", {}, "has no 'Missing'"),
        (f"{__name__}:NAME", {}, "has no form in JAX"),
    ],
)
def test_what_cannot_be_made_says_why(env_id: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(env_id, kwargs)


# -- as Gymnasium environments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", [*JAX_ONLY, NAME])
def test_the_adapter_keeps_gymnasium_s_contract(env_id: str) -> None:
    report = check_env(env_id)
    assert report.ok, str(report)
    assert replay_is_exact(partial(make_env, env_id), cuts=3, steps=40)


def test_the_adapter_plays_what_the_compiled_lane_plays() -> None:
    env = make("RLJax/Catch-v0")
    reference: Any = make_env("RLJax/Catch-v0", seed=1)
    obs, _ = reference.reset(seed=5)
    state = reference.unwrapped._state
    np.testing.assert_array_equal(obs, env.obs(state)[0])
    rewards = []
    for action in (0, 2, 2, 1, 0, 2, 2, 1, 1):
        state, reward, terminated, _ = env.step(state, jnp.array([action]), jax.random.key(0))
        obs, their_reward, their_end, truncated, _ = reference.step(action)
        np.testing.assert_array_equal(obs, env.obs(state)[0])
        assert (their_reward, their_end, truncated) == (float(reward[0]), bool(terminated[0]), False)
        rewards.append(their_reward)
    assert rewards[:8] == [0.0] * 8
    assert abs(rewards[8]) == 1.0


def test_seeds_decide_the_luck_of_an_episode() -> None:
    env = make_env("RLJax/FourRooms-v0", EnvConfig(kwargs={"goal": [1, 1]}))

    def walk(seed: int) -> list[Any]:
        env.reset(seed=seed)
        return [env.step(t % 4)[0].tolist() for t in range(20)]

    assert walk(3) == walk(3)
    assert walk(3) != walk(4)


def test_the_limit_of_the_class_and_of_the_config_truncate() -> None:
    env = make_env(NAME, EnvConfig(kwargs={"start": 8}, max_episode_steps=2))
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]
    rooms: Any = make_env("RLJax/FourRooms-v0")
    assert rooms.get_wrapper_attr("_max_episode_steps") == 500


def test_copies_share_their_compiled_functions() -> None:
    envs = make_vector_env(TrainConfig(algo="random", env_id="RLJax/Catch-v0"), num_envs=3)
    first, *others = (env.unwrapped.program for env in envs.envs)  # type: ignore[attr-defined]
    assert all(other is first for other in others)
    assert compiled_env(Launch, {"start": 2}) is not compiled_env(Launch, {"start": 3})


@pytest.mark.parametrize("env_id", JAX_ONLY)
def test_there_are_pictures_for_videos_that_change_with_the_state(env_id: str) -> None:
    env = make_env(env_id, EnvConfig(), render_mode="rgb_array")
    env.reset(seed=1)
    pictures = [env.render()]
    for action in (0, 1, 0, 1):
        env.step(action)
        pictures.append(env.render())
    assert all(p.dtype == np.uint8 and p.ndim == 3 and p.shape[2] == 3 for p in pictures)
    assert len({p.tobytes() for p in pictures}) > 2
    for end in range(100):  # also of the last state of an episode
        _, _, terminated, _, _ = env.step(end % env.action_space.n)
        env.render()
        if terminated:
            break


def test_a_class_without_pictures_is_told_how_to_have_them() -> None:
    with pytest.raises(EnvError, match=r"cannot render; give its class a method render\(state\)"):
        make_env(NAME, EnvConfig(), render_mode="rgb_array")


def test_they_are_listed_with_the_jax_environments() -> None:
    by_name = {suite.name: suite.ids for suite in list_envs()}
    assert set(JAX_ONLY) <= set(by_name["jax"])


def test_without_jax_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "jax" else object())
    with pytest.raises(ConfigError, match=r"'RLJax/Catch-v0' needs an extra: pip install 'rl-training\[jax\]'"):
        make_env("RLJax/Catch-v0")


def test_finding_a_name_imports_no_jax(tmp_path: Path) -> None:
    program = "import sys; from rl_training.jax.envs import find; find('CartPole-v1'); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False).returncode == 0
