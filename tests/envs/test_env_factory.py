"""make_env, make_vector_env, the factory front, and the errors a new user meets."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from rl_training.config.schema import EnvConfig, TrainConfig, WrapperConfig
from rl_training.envs import EnvironmentFactory, EnvThunk, EpisodeLog, make_env, make_vector_env
from rl_training.registry import environments
from rl_training.seeding import reset_seed
from rl_training.types import ConfigError, EnvError

MODULE = '''
import gymnasium as gym
import numpy as np
from gymnasium import spaces

class Line(gym.Env):
    """Walk right for ever."""
    def __init__(self, speed=1.0):
        self.speed = speed
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        return np.array([self.x], np.float32), {}
    def step(self, action):
        self.x += self.speed
        return np.array([self.x], np.float32), self.x, False, False, {}

def fast_line(**kwargs):
    return Line(speed=10.0)

def not_an_env():
    return object()

def broken():
    raise RuntimeError("no licence found")

class Double(gym.RewardWrapper):
    def __init__(self, env, factor=2.0):
        super().__init__(env)
        self.factor = factor
    def reward(self, reward):
        return self.factor * reward

NUMBER = 3
gym.register("UserNamespace/Line-v2", f"{__name__}:Line", max_episode_steps=7)
'''


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "user_envs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "user_envs"
    sys.modules.pop("user_envs", None)
    gym.registry.pop("UserNamespace/Line-v2", None)


def wrapped(*names: str, **kwargs: Any) -> EnvConfig:
    return EnvConfig(wrappers=tuple(WrapperConfig(name) for name in names), **kwargs)


# -- where an environment comes from ----------------------------------------------------------------------------------


def test_a_plain_gymnasium_environment_gets_no_layer_but_the_log() -> None:
    env = make_env("CartPole-v1")
    assert isinstance(env, EpisodeLog)
    assert str(env) == "<EpisodeLog<TimeLimit<CartPoleEnv<CartPole-v1>>>>"


def test_a_class_by_dotted_name_with_arguments(user_module: str) -> None:
    env = make_env(f"{user_module}:Line", EnvConfig(kwargs={"speed": 3.0}))
    env.reset()
    assert env.step(0)[0].tolist() == [3.0]


def test_a_function_by_dotted_name(user_module: str) -> None:
    env = make_env(f"{user_module}:fast_line")
    env.reset()
    assert env.step(0)[1] == 10.0


def test_a_module_before_a_gymnasium_id_is_imported(user_module: str) -> None:
    env = make_env(f"{user_module}:UserNamespace/Line-v2")
    env.reset()
    assert [env.step(0)[3] for _ in range(7)] == [False] * 6 + [True]


def test_an_id_that_a_plugin_registers(user_module: str) -> None:
    cfg = TrainConfig(env_id="UserNamespace/Line-v2", plugins=(user_module,))
    assert make_vector_env(cfg, 2).reset()[0].tolist() == [[0.0], [0.0]]


@pytest.mark.usefixtures("registrations")
def test_a_registered_name() -> None:
    environments.add("my-pole", CartPoleEnv)
    env = make_env("my-pole", EnvConfig(max_episode_steps=5))
    assert str(env) == "<EpisodeLog<TimeLimit<CartPoleEnv instance>>>"


def test_env_fn() -> None:
    cfg = TrainConfig(env_id="ignored", env=EnvConfig(num_envs=3, kwargs={}))
    envs = make_vector_env(cfg, env_fn=lambda: TimeLimit(CartPoleEnv(), 4))
    assert envs.num_envs == 3
    assert envs.reset()[0].shape == (3, 4)


def test_max_episode_steps_replaces_the_limit_of_an_id() -> None:
    env = make_env("MountainCar-v0", EnvConfig(max_episode_steps=300))
    env.reset()
    assert [env.step(1)[3] for _ in range(300)].index(True) == 299


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        ("cartpole-v1", "did you mean 'CartPole-v1'?"),
        ("CartPole", "did you mean 'CartPole-v1'?"),
        ("CartPole-v9", "did you mean 'CartPole-v1'?"),
        ("CartPole-v0", "is an old version; use 'CartPole-v1' (with env.max_episode_steps: 200 for the old limit)"),
        ("LunarLander-v2", "is an old version that was removed; use 'LunarLander-v3'"),
        ("Taxi-v3", "use 'Taxi-v4'"),
        ("HalfCheetah-v2", "use 'HalfCheetah-v5'"),
        ("no such thing at all", "unknown environment 'no such thing at all' (`rl envs` lists them"),
        ("no_such_module_here:Thing", "cannot import 'no_such_module_here'"),
        ("no_such_module_here:Thing-v0", "cannot import 'no_such_module_here'"),
        ("gymnasium.envs.classic_control:CartPolEnv", "did you mean 'CartPoleEnv'?"),
    ],
)
def test_a_wrong_name_gets_a_suggestion(env_id: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_env(env_id)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "env_id",
    ["", ":", "a:", ":b", ".x:Y", "..:A-v0", "a..b:Y", "a\0b:Y", "a:b:c", "-v1", "X-v" + "9" * 5000, "CartPole-v1\n"],
)
def test_no_name_breaks_the_lookup(env_id: str) -> None:
    with pytest.raises(ConfigError):
        make_env(env_id)


def test_older_mujoco_versions_stay_usable() -> None:
    env = make_env("InvertedPendulum-v4")
    env.reset()
    env.step(np.zeros(1))
    env.close()


@pytest.mark.parametrize(
    ("env_id", "extra"),
    [("ALE/Pong-v5", "atari"), ("PongNoFrameskip-v4", "atari"), ("MiniGrid-Empty-5x5-v0", "minigrid"),
     ("dm_control/cartpole-balance-v0", "dm-control"), ("tabular/CliffWalking-v0", "jax")],
)  # fmt: skip
def test_a_missing_extra_comes_with_its_line(env_id: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ale_py", "minigrid", "shimmy", "jax", "gymnasium.envs.tabular.cliffwalking"):
        monkeypatch.setitem(sys.modules, module, None)  # what Python does for a package that is not installed
    if not env_id.startswith("tabular/"):
        monkeypatch.delitem(gym.registry, env_id, raising=False)  # another test may have imported the suite
    with pytest.raises(ConfigError) as caught:
        make_env(env_id)
    assert f"pip install 'rl-training[{extra}]'" in str(caught.value)


def test_gymnasiums_own_missing_dependency_comes_with_our_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(ConfigError, match=r"pip install 'rl-training\[box2d\]'"):
        make_env("LunarLander-v3")


def test_rendering_without_pygame_comes_with_our_line(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env("CartPole-v1", render_mode="rgb_array")
    env.reset()
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ConfigError, match=r"pip install 'rl-training\[classic\]'"):
        env.render()


def test_arguments_that_an_environment_does_not_take(user_module: str) -> None:
    with pytest.raises(
        ConfigError, match=r"env.kwargs: environment 'CartPole-v1' takes no 'sutton_bart_reward'; did you"
    ):
        make_env("CartPole-v1", EnvConfig(kwargs={"sutton_bart_reward": True}))
    with pytest.raises(ConfigError, match=r"takes no 'sped'; did you mean 'speed'\?"):
        make_env(f"{user_module}:Line", EnvConfig(kwargs={"sped": 1}))
    with pytest.raises(ConfigError, match="takes no 'x'"):
        make_env(lambda: CartPoleEnv(), EnvConfig(kwargs={"x": 1}))
    with pytest.raises(ConfigError, match=r"env\.max_episode_steps"):
        make_env("CartPole-v1", EnvConfig(kwargs={"max_episode_steps": 1}))


def test_what_is_not_an_environment(user_module: str) -> None:
    with pytest.raises(EnvError, match=r"made a builtins\.object, not a gymnasium\.Env"):
        make_env(f"{user_module}:not_an_env")
    with pytest.raises(EnvError, match="failed while it was built: RuntimeError: no licence found"):
        make_env(f"{user_module}:broken")
    with pytest.raises(ConfigError, match="is a int, not a class or a function"):
        make_env(f"{user_module}:NUMBER")
    with pytest.raises(ConfigError, match="plugins: cannot import 'not_there_at_all'"):
        make_vector_env(TrainConfig(plugins=("not_there_at_all",)))


def test_an_env_fn_that_cannot_render_is_told_how() -> None:
    with pytest.raises(EnvError, match="give its class or function a `render_mode` parameter"):
        make_env(lambda: CartPoleEnv(), render_mode="rgb_array")
    assert make_env(CartPoleEnv, render_mode="rgb_array").render_mode == "rgb_array"


# -- wrappers ---------------------------------------------------------------------------------------------------------


def test_wrappers_are_applied_innermost_first() -> None:
    env = make_env("CartPole-v1", wrapped("episode_statistics", "clip_reward", max_episode_steps=9))
    assert str(env) == (
        "<EpisodeLog<ClipReward<RecordEpisodeStatistics<TimeLimit<CartPoleEnv<CartPole-v1>>>>>>"
    )  # fmt: skip


def test_train_only_wrappers_are_left_out_of_evaluation(user_module: str) -> None:
    double = WrapperConfig(f"{user_module}:Double", {"factor": 5.0}, train_only=True)
    cfg = EnvConfig(wrappers=(double, WrapperConfig("clip_reward", {"max_reward": 3.0})))
    rewards = []
    for training in (True, False):
        env = make_env("CartPole-v1", cfg, training=training)
        env.reset()
        rewards.append(env.step(0)[1])
    assert rewards == [3.0, 1.0]


def test_wrong_wrappers_are_named(user_module: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown wrapper 'frame_stak'; did you mean 'frame_stack'\?"):
        make_env("CartPole-v1", wrapped("frame_stak"))
    with pytest.raises(ConfigError, match=r"wrapper 'frame_stack' takes no 'n' \(it takes: env, num_frames\)"):
        make_env("CartPole-v1", EnvConfig(wrappers=(WrapperConfig("frame_stack", {"n": 2}),)))
    with pytest.raises(EnvError, match="wrapper 'frame_stack' failed around"):
        make_env("CartPole-v1", wrapped("frame_stack"))
    with pytest.raises(EnvError, match="wrapper 'builtins:str' made a str"):
        make_env("CartPole-v1", wrapped("builtins:str"))


def test_the_factory_front() -> None:
    env = EnvironmentFactory.create_env("CartPole-v1", {"frame_stack": 2, "wrappers": ["clip_reward"]})
    assert env.observation_space.shape == (2, 4)
    plain = EnvironmentFactory.apply_wrappers(
        CartPoleEnv(), ["clip_reward", {"name": "frame_stack", "kwargs": {"num_frames": 3}}]
    )
    assert plain.observation_space.shape == (3, 4)
    with pytest.raises(ConfigError, match=r"takes no 'framestack'; did you mean 'frame_stack'\?"):
        EnvironmentFactory.create_env("CartPole-v1", {"framestack": 2})
    with pytest.raises(ConfigError, match="frame_stack"):
        EnvironmentFactory.create_env("CartPole-v1", {"frame_stack": 0})
    with pytest.raises(ConfigError, match="a wrapper needs a name"):
        EnvironmentFactory.apply_wrappers(CartPoleEnv(), [{"kwargs": {}}])


# -- vectors ----------------------------------------------------------------------------------------------------------


def test_the_default_is_a_gymnasium_sync_vector_in_same_step_mode() -> None:
    envs = make_vector_env(TrainConfig(seed=4), num_envs=3)
    assert isinstance(envs, SyncVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, _ = envs.reset()
    for index in range(3):
        first, _ = gym.make("CartPole-v1").reset(seed=reset_seed(4, index, 0))
        np.testing.assert_array_equal(obs[index], first)


def test_evaluation_environments_never_reuse_training_seeds() -> None:
    training, evaluation = (make_vector_env(TrainConfig(seed=4), 4, training=flag) for flag in (True, False))
    rows = {row.tobytes() for envs in (training, evaluation) for _ in range(3) for row in envs.reset()[0]}
    assert len(rows) == 24


def test_num_envs_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="num_envs must be at least 1, not 0"):
        make_vector_env(TrainConfig(), 0)


def test_async_uses_the_workers_and_gives_the_same_numbers() -> None:
    cfg = TrainConfig(env=EnvConfig(num_envs=3, vectorization="async", num_workers=2))
    workers = make_vector_env(cfg)
    sync = make_vector_env(replace(cfg, env=replace(cfg.env, vectorization="sync")))
    try:
        np.testing.assert_array_equal(workers.reset()[0], sync.reset()[0])
        for action in np.random.default_rng(0).integers(2, size=(60, 3)):
            left, right = workers.step(action), sync.step(action)
            for mine, theirs in zip(left[:4], right[:4], strict=True):
                np.testing.assert_array_equal(mine, theirs)
    finally:
        workers.close()


def test_a_thunk_pickles() -> None:
    thunk = EnvThunk("CartPole-v1", wrapped("clip_reward"), seed=3, index=1)
    left, right = thunk(), pickle.loads(pickle.dumps(thunk))()
    np.testing.assert_array_equal(left.reset()[0], right.reset()[0])


def test_spaces_that_differ_between_environments_are_refused() -> None:
    sizes = iter((2, 3))

    class Growing(CartPoleEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Discrete(next(sizes))

    with pytest.raises(EnvError, match="differ"):
        make_vector_env(TrainConfig(), 2, env_fn=Growing)
