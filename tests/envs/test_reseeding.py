"""Environments whose seeding is expensive: resets without seeds between, and logs that reach back over them."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.checkpointing.state_tree import flatten, unflatten
from rl_training.config.schema import EnvConfig, WrapperConfig
from rl_training.envs import EpisodeLog, make_env, replay_difference
from rl_training.envs.replay_check import advance
from rl_training.envs.suites import reseed_steps_of
from rl_training.seeding import reset_seed
from rl_training.types import EnvError


class Wheel(gym.Env[Any, Any]):
    """A random walk whose episodes follow from each other unless a reset is seeded; ends after `length` steps."""

    def __init__(self, length: int = 3) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.length = length
        self.seeds: list[int | None] = []
        self.state = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.state = 0.0
        self.seeds.append(seed)
        self.time = 0
        return self.observe(), {}

    def observe(self) -> Any:
        self.state += self.np_random.standard_normal()
        return np.array([self.state])

    def step(self, action: Any) -> Any:
        self.time += 1
        self.state *= 1.0 + int(action)
        return self.observe(), self.state, self.time >= self.length, False, {}


def play(log: EpisodeLog, steps: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [advance(log, rng.integers(2)) for _ in range(steps)]


def test_a_seed_after_so_many_steps() -> None:
    env = Wheel()
    log = EpisodeLog(env, seed=4, index=1, reseed_steps=7)
    log.reset()
    play(log, 18)  # episodes of three steps: the log holds 3, 6 and 9 steps when they end
    assert env.seeds == [reset_seed(4, 1, 0), None, None, reset_seed(4, 1, 3), None, None, reset_seed(4, 1, 6)]
    assert log.reset_count == 7
    assert (log.episode_steps, log.last_action) == (0, None)


def test_explicit_seeds_and_options_start_a_log() -> None:
    env = Wheel()
    log = EpisodeLog(env, seed=4, reseed_steps=100)
    log.reset(seed=11)
    log.reset()
    log.reset(options={"x": 1})
    assert env.seeds == [11, None, reset_seed(4, 0, 1)]


@pytest.mark.parametrize("cut", range(24))
def test_every_cut_goes_on_bit_for_bit(cut: int) -> None:
    live = EpisodeLog(Wheel(), seed=1, reseed_steps=8)
    live.reset()
    play(live, cut)
    resumed = EpisodeLog(Wheel(), seed=1, reseed_steps=8)
    resumed.load_state_dict(unflatten(flatten(live.state_dict())))
    resumed.reset()
    assert play(resumed, 30, seed=1) == play(live, 30, seed=1)
    assert resumed.reset_count == live.reset_count


@pytest.mark.parametrize("steps", [3, 6, 9])
def test_a_cut_between_two_episodes(steps: int) -> None:
    """The next episode follows from the log although none is open; behind eight steps it gets a seed."""
    live, resumed = (EpisodeLog(Wheel(), seed=1, reseed_steps=8) for _ in range(2))
    live.reset()
    for step in range(1, steps + 1):
        live.step(1)
        if step % 3 == 0 and step < steps:
            live.reset()
    state = live.state_dict()
    assert state["open"] is False
    assert ("seed" in state) == (steps < 8)
    resumed.load_state_dict(state)
    assert resumed.reset()[0] == live.reset()[0]
    assert play(resumed, 20) == play(live, 20)


def test_two_resets_in_a_row_are_both_played() -> None:
    live, resumed = (EpisodeLog(Wheel(), seed=1, reseed_steps=8) for _ in range(2))
    live.reset()
    live.step(1)
    live.reset()
    live.reset()
    resumed.load_state_dict(live.state_dict())
    resumed.reset()
    assert play(resumed, 20) == play(live, 20)


def test_an_episode_that_does_not_end_where_it_did_is_found_out() -> None:
    live = EpisodeLog(Wheel(length=3), reseed_steps=8)
    live.reset()
    for _ in range(3):
        live.step(1)
    resumed = EpisodeLog(Wheel(length=4), reseed_steps=8)
    resumed.load_state_dict(live.state_dict())
    with pytest.raises(EnvError, match="the episode did not end at the last step"):
        resumed.reset()


def test_atari_declares_it_and_others_do_not() -> None:
    assert reseed_steps_of(gym.make("CartPole-v1")) == 0
    log = make_env("PongNoFrameskip-v4", EnvConfig(wrappers=(WrapperConfig("atari"),)))
    assert isinstance(log, EpisodeLog)
    assert log.reseed_steps == 10_000


def test_a_game_without_the_wrapper_replays_over_its_resets() -> None:
    make = partial(make_env, "BreakoutNoFrameskip-v4", EnvConfig(kwargs={"frameskip": (2, 5)}))
    assert replay_difference(make, cuts=3, steps=150) is None
