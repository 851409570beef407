"""Native vector environments: Gymnasium's NumPy CartPole, seeded once, saved as a snapshot."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.checkpointing.state_tree import flatten, unflatten
from rl_training.config.schema import EnvConfig, TrainConfig, WrapperConfig
from rl_training.envs import make_vector_env
from rl_training.seeding import stream
from rl_training.types import ConfigError


def config(**env: Any) -> TrainConfig:
    return TrainConfig(seed=6, env=EnvConfig(vectorization="native", **env))


def play(envs: Any, steps: int, seed: int = 0) -> list[Any]:
    actions = np.random.default_rng(seed).integers(2, size=(steps, envs.num_envs))
    return [envs.step(row)[:4] for row in actions]


def assert_equal(left: list[Any], right: list[Any]) -> None:
    for one, other in zip(left, right, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs, strict=True)


def test_it_is_gymnasiums_own_with_its_autoreset_mode_and_the_runs_seed() -> None:
    envs: Any = make_vector_env(config(), 5)
    assert isinstance(envs.unwrapped, CartPoleVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.exact
    theirs = gym.make_vec("CartPole-v1", 5, vectorization_mode="vector_entry_point")
    first, _ = theirs.reset(seed=int(stream(6, "env", 0).integers(2**31)))
    np.testing.assert_array_equal(envs.reset()[0], first)
    assert_equal(play(envs, 100), play(theirs, 100))


def test_a_second_reset_goes_on_with_the_generator() -> None:
    one, other = make_vector_env(config(), 2), make_vector_env(config(), 2)
    first, second = one.reset()[0], one.reset()[0]
    assert (first != second).all()
    other.reset()
    np.testing.assert_array_equal(other.reset()[0], second)


@pytest.mark.parametrize("cut", [0, 1, 37, 250])
def test_a_snapshot_continues_bit_for_bit(cut: int) -> None:
    live: Any = make_vector_env(config(), 4)
    obs, _ = live.reset()
    for step in play(live, cut):
        obs = step[0]
    state = unflatten(flatten(live.state_dict()))  # as a checkpoint would keep it
    resumed: Any = make_vector_env(config(), 4, state=state)
    np.testing.assert_array_equal(resumed.reset()[0], obs)
    assert_equal(play(resumed, 200, seed=1), play(live, 200, seed=1))


def test_a_snapshot_is_a_copy_and_holds_reset_bounds() -> None:
    live: Any = make_vector_env(config(), 3)
    live.reset(options={"low": -0.01, "high": 0.01})
    state = live.state_dict()
    before = state["attributes"]["state"].copy()
    play(live, 20)
    np.testing.assert_array_equal(state["attributes"]["state"], before)
    resumed: Any = make_vector_env(config(), 3, state=state)
    resumed.reset()
    assert (resumed.unwrapped.low, resumed.unwrapped.high) == (-0.01, 0.01)


def test_a_state_from_before_the_first_reset() -> None:
    live: Any = make_vector_env(config(), 3)
    resumed: Any = make_vector_env(config(), 3, state=live.state_dict())
    np.testing.assert_array_equal(live.reset()[0], resumed.reset()[0])


def test_another_number_of_environments_is_refused() -> None:
    live: Any = make_vector_env(config(), 3)
    with pytest.raises(ConfigError, match="has 3 environments, this one 2"):
        make_vector_env(config(), 2, state=live.state_dict())


def test_what_a_native_vector_cannot_do_is_refused_with_the_cure() -> None:
    cure = "set env.vectorization to sync or async"
    with pytest.raises(ConfigError, match=rf"'Acrobot-v1' has no native vector environment; {cure}"):
        make_vector_env(TrainConfig(env_id="Acrobot-v1", env=EnvConfig(vectorization="native")))
    with pytest.raises(ConfigError, match=rf"'CartPoleVectorEnv' has no native vector environment; {cure}"):
        make_vector_env(config(), env_fn=CartPoleVectorEnv)
    with pytest.raises(ConfigError, match=r"env\.wrappers: a native vector environment takes no wrappers"):
        make_vector_env(config(wrappers=(WrapperConfig("clip_reward"),)))
    with pytest.raises(ConfigError, match=r"env\.frame_stack"):
        make_vector_env(config(frame_stack=2))
    with pytest.raises(ConfigError, match=r"takes no 'sutton_bart_reward'; did you mean 'sutton_barto_reward'"):
        make_vector_env(config(kwargs={"sutton_bart_reward": True}))


def test_kwargs_and_the_time_limit_reach_it() -> None:
    envs: Any = make_vector_env(config(max_episode_steps=3, kwargs={"sutton_barto_reward": True}), 2)
    envs.reset()
    steps = play(envs, 3)
    assert steps[-1][3].tolist() == [True, True]
    assert [step[1].tolist() for step in steps] == [[0.0, 0.0]] * 3


def test_evaluation_of_a_native_run_is_sync() -> None:
    assert isinstance(make_vector_env(config(), 2, training=False), SyncVectorEnv)


class Forgetful(CartPoleVectorEnv):
    """A vector environment without an entry in SNAPSHOTS."""


class Stateful(CartPoleVectorEnv):
    """A vector environment with its own state_dict."""

    def state_dict(self) -> dict[str, Any]:
        return {"state": np.array(self.state), "steps": self.steps.copy(), "done": self.prev_done.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.low, self.high = -0.05, 0.05
        self.state, self.steps, self.prev_done = state["state"], state["steps"], state["done"]


@pytest.fixture
def registered() -> Any:
    gym.register("Native/Forgetful-v0", vector_entry_point=Forgetful, max_episode_steps=500)
    gym.register("Native/Stateful-v0", vector_entry_point=Stateful, max_episode_steps=500)
    yield
    for name in ("Forgetful", "Stateful"):
        gym.registry.pop(f"Native/{name}-v0")


def test_an_unknown_native_vector_restarts_and_says_so(registered: None) -> None:
    cfg = TrainConfig(env_id="Native/Forgetful-v0", env=EnvConfig(vectorization="native"))
    live: Any = make_vector_env(cfg, 2)
    first, _ = live.reset()
    play(live, 3)
    assert not live.exact
    assert live.state_dict()["open"] is False
    resumed: Any = make_vector_env(cfg, 2, state=live.state_dict())
    assert (resumed.reset()[0] != first).all()


def test_a_native_vector_with_its_own_state_is_exact(registered: None) -> None:
    cfg = TrainConfig(env_id="Native/Stateful-v0", env=EnvConfig(vectorization="native"))
    live: Any = make_vector_env(cfg, 2)
    live.reset()
    obs = play(live, 4)[-1][0]
    resumed: Any = make_vector_env(cfg, 2, state=live.state_dict())
    assert live.exact
    np.testing.assert_array_equal(resumed.reset()[0], obs)
    assert_equal(play(resumed, 5), play(live, 5))
