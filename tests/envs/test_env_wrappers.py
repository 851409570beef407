"""Wrappers: normalisation to hand-computed numbers, frame stack, and every name a config can use."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.config.schema import EnvConfig, WrapperConfig
from rl_training.envs import FrameStack, NormalizeObservations, NormalizeRewards, make_env
from rl_training.envs.probes.control import Counting
from rl_training.registry import wrappers
from rl_training.types import EnvError


class Ticks(gym.Env[Any, Any]):
    """Reward 1, episodes of 3; observations from a list, or the time."""

    def __init__(self, end: str = "terminated", observations: Any = None) -> None:
        self.end = end
        self.observations = iter(observations) if observations is not None else None
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = spaces.Box(-2, 1, (1,), np.float32)
        self.actions: list[Any] = []

    def _obs(self) -> Any:
        return np.array([self.time if self.observations is None else next(self.observations)], np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.actions.append(action)
        ended = self.time == 3
        return self._obs(), 1.0, ended and self.end == "terminated", ended and self.end == "truncated", {}


# -- normalisation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_discounted_returns_start_anew_with_every_episode(end: str) -> None:
    env = NormalizeRewards(Ticks(end), gamma=0.5)
    returns, rewards = [], []
    for _ in range(2):
        env.reset()
        for _ in range(3):
            _, reward, *_ = env.step(np.zeros(1))
            returns.append(env.discounted_return)
            rewards.append(reward)
    assert returns == [1.0, 1.5, 1.75, 1.0, 1.5, 1.75]
    # the divisor is the standard deviation of the returns so far: of [1, 1.5] it is 0.25, of [1, 1.5, 1.75] 0.311805
    assert rewards[1] == pytest.approx(1 / 0.25, abs=1e-5)
    assert rewards[2] == pytest.approx(1 / 0.3118048, abs=1e-5)
    assert rewards[5] == pytest.approx(1 / np.std(returns), abs=1e-5)


def test_normalised_rewards_are_clipped_and_can_be_frozen() -> None:
    env = NormalizeRewards(Ticks(), gamma=0.5, clip=2.0)
    env.reset()
    assert [env.step(np.zeros(1))[1] for _ in range(3)] == [2.0, 2.0, 2.0]
    env.update = False
    count = env.statistics.count
    env.reset()
    env.step(np.zeros(1))
    assert env.statistics.count == count == 3


def test_observation_statistics_equal_those_of_the_whole_batch() -> None:
    samples = np.random.default_rng(0).normal(1e5, 1.0, 6_000)
    env = NormalizeObservations(Ticks(observations=samples))
    env.reset()
    for i in range(len(samples) - 1):
        if i % 3 == 0 and i:
            env.reset()
            continue
        env.step(np.zeros(1))
    assert env.statistics.count == 6_000
    assert env.statistics.var[0] == pytest.approx(samples.var(), abs=1e-6)
    assert env.statistics.mean[0] == pytest.approx(samples.mean(), abs=1e-6)


def test_normalised_observations_by_hand() -> None:
    env = NormalizeObservations(Ticks(observations=[1.0, 3.0, 5.0, 100.0]))
    first, _ = env.reset()
    assert first.tolist() == [0.0]
    second = env.step(np.zeros(1))[0]
    assert second[0] == pytest.approx(1.0, abs=1e-6)  # mean 2, standard deviation 1
    assert second.dtype == np.float32
    third = env.step(np.zeros(1))[0]
    assert third[0] == pytest.approx(2 / np.sqrt(8 / 3), abs=1e-6)  # mean 3, variance 8/3
    env.update = False
    assert env.step(np.zeros(1))[0].tolist() == [10.0]  # clipped
    assert env.observation_space.contains(third)


@pytest.mark.parametrize("kind", [NormalizeObservations, NormalizeRewards])
def test_normalisers_are_saved_and_restored(kind: Any) -> None:
    env = kind(Ticks())
    env.reset()
    env.step(np.zeros(1))
    other = kind(Ticks())
    other.load_state_dict(env.state_dict())
    other.env.time = 1
    for mine, theirs in zip(env.step(np.zeros(1))[:2], other.step(np.zeros(1))[:2], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_normalising_what_is_not_a_box_is_refused() -> None:
    with pytest.raises(EnvError, match="needs Box observations, not Discrete"):
        NormalizeObservations(gym.make("FrozenLake-v1"))


@pytest.mark.parametrize("name", ["normalize_obs", "normalize_reward", "gymnasium.wrappers:NormalizeReward"])
def test_normalising_wrappers_make_resume_inexact(name: str) -> None:
    env: Any = make_env("Pendulum-v1", EnvConfig(wrappers=(WrapperConfig(name),)))
    assert not env.exact


def test_the_config_switches_do_not_touch_the_environment() -> None:
    env: Any = make_env("CartPole-v1", EnvConfig(normalize_obs=True, normalize_reward=True))
    assert env.exact
    assert str(env) == "<EpisodeLog<TimeLimit<CartPoleEnv<CartPole-v1>>>>"


# -- frame stack ------------------------------------------------------------------------------------------------------


def test_frames_are_stacked_along_a_new_first_axis_oldest_first() -> None:
    env = FrameStack(Counting(), 3)
    assert env.observation_space.shape == (3, 1)
    seen = [env.reset()[0]]
    seen += [env.step(0)[0] for _ in range(3)]
    assert [stack.ravel().tolist() for stack in seen] == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]
    assert env.reset()[0].ravel().tolist() == [0, 0, 0]
    assert all(env.observation_space.contains(stack) for stack in seen)


def test_bounds_are_stacked_too() -> None:
    env = FrameStack(gym.make("Pendulum-v1"), 2)
    space = env.observation_space
    assert isinstance(space, spaces.Box)
    np.testing.assert_array_equal(space.high, np.array([[1, 1, 8], [1, 1, 8]], np.float32))


def test_dict_observations_are_stacked_key_by_key_without_the_mask() -> None:
    env = make_env("RLProbe/MaskedArms-v0", EnvConfig(frame_stack=4))
    obs, _ = env.reset()
    assert {key: value.shape for key, value in obs.items()} == {"obs": (4, 1), "action_mask": (3,)}
    assert env.observation_space.contains(obs)
    obs, *_ = env.step(0)
    assert env.observation_space.contains(obs)


def test_frames_that_cannot_be_stacked() -> None:
    with pytest.raises(EnvError, match="FrameStack needs Box observations, not Discrete"):
        make_env("FrozenLake-v1", EnvConfig(frame_stack=2))
    with pytest.raises(EnvError, match="at least 1 frame"):
        FrameStack(Counting(), 0)


# -- the names of a config --------------------------------------------------------------------------------------------


def wrap(name: str, env: Any, **kwargs: Any) -> Any:
    return wrappers.get(name)(env, **kwargs)


def test_clip_action() -> None:
    env = Ticks()
    wrapped = wrap("clip_action", env)
    wrapped.reset()
    wrapped.step(np.array([5.0], np.float32))
    assert env.actions[0].tolist() == [1.0]


def test_rescale_action() -> None:
    env = Ticks()  # from -2 to 1
    wrapped = wrap("rescale_action", env)
    wrapped.reset()
    for action in (-1.0, 0.5, 1.0):
        wrapped.step(np.array([action], np.float32))
    assert np.concatenate(env.actions) == pytest.approx([-2.0, 0.25, 1.0], abs=1e-6)
    assert wrapped.action_space == spaces.Box(-1, 1, (1,), np.float32)


def test_rescaled_actions_stay_within_the_bounds_of_the_environment() -> None:
    rng = np.random.default_rng(4)
    for dtype in (np.float32, np.float64):
        for _ in range(40):
            low = rng.normal(size=1) * 10.0 ** rng.uniform(-3, 3)
            env = Ticks()
            env.action_space = spaces.Box(
                low.astype(dtype), (low + 10.0 ** rng.uniform(-2, 3)).astype(dtype), dtype=dtype
            )
            wrapped = wrap("rescale_action", env)
            wrapped.reset()
            for action in (-1.0, 1.0, *rng.uniform(-1, 1, 5)):
                wrapped.step(np.array([action], dtype))
            assert all(env.action_space.contains(action) for action in env.actions)


def test_clip_reward() -> None:
    env = wrap("clip_reward", Counting(), max_reward=2.0)
    env.reset()
    assert [env.step(0)[1] for _ in range(3)] == [1.0, 2.0, 2.0]


def test_scale_reward() -> None:
    env = wrap("scale_reward", Counting(), factor=0.5)
    env.reset()
    assert [env.step(0)[1] for _ in range(3)] == [0.5, 1.0, 1.5]


def test_time_limit() -> None:
    env = wrap("time_limit", Ticks(), max_episode_steps=2)
    env.reset()
    assert [env.step(np.zeros(1))[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_episode_statistics() -> None:
    env = wrap("episode_statistics", Counting())
    env.reset()
    info = [env.step(0)[4] for _ in range(3)][-1]
    assert (float(info["episode"]["r"]), int(info["episode"]["l"])) == (6.0, 3)


def test_flatten_observation() -> None:
    env = wrap("flatten_observation", gym.make("Blackjack-v1"))
    obs, _ = env.reset(seed=0)
    assert obs.shape == (45,)
    assert obs.sum() == 3


def test_time_aware() -> None:
    env = wrap("time_aware", wrap("time_limit", Counting(), max_episode_steps=3))
    env.reset()
    assert env.step(0)[0].tolist() == [1.0, 1.0]


def test_sticky_action_repeats_under_the_episode_seed() -> None:
    def executed(seed: int) -> list[float]:
        env = Ticks()
        env.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        wrapped = wrap("sticky_action", env, repeat_action_probability=0.5)
        rows = []
        for episode in range(5):
            wrapped.reset(seed=seed + episode)
            for i in range(3):
                wrapped.step(np.array([i / 10], np.float32))
            rows += [float(action[0]) for action in env.actions]
        return rows

    assert executed(1) == executed(1)
    assert executed(1) != executed(2)


def test_every_name_is_tested_here_or_with_its_suite() -> None:
    preprocessing = {"action_repeat", "atari", "dm_control", "minigrid", "pixels", "select_observation"}
    assert set(wrappers.names()) - preprocessing == {
        "action_mask", "clip_action", "clip_reward", "episode_statistics", "flatten_observation", "frame_stack",
        "normalize_obs", "normalize_reward", "rescale_action", "scale_reward", "sticky_action", "time_aware",
        "time_limit",
    }  # fmt: skip
    assert preprocessing <= set(wrappers.names())
