"""The wrapper `select_observation`: the numbers that are kept, their bounds, and what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.config import EnvConfig, WrapperConfig
from rl_training.envs import make_env
from rl_training.types import EnvError


def selected(env_id: str, indices: list[int]) -> gym.Env[Any, Any]:
    return make_env(env_id, EnvConfig(wrappers=(WrapperConfig("select_observation", {"indices": indices}),)), seed=0)


def test_chosen_numbers_and_their_bounds_are_kept_in_the_given_order() -> None:
    whole, part = make_env("CartPole-v1", seed=0), selected("CartPole-v1", [2, 0])
    given: Any = whole.observation_space
    kept: Any = part.observation_space
    assert np.array_equal(kept.low, given.low[[2, 0]])
    assert np.array_equal(kept.high, given.high[[2, 0]])
    assert np.array_equal(part.reset(seed=3)[0], whole.reset(seed=3)[0][[2, 0]])
    for action in (0, 1, 1):
        seen, *rest = part.step(action)
        full, *same = whole.step(action)
        assert np.array_equal(seen, full[[2, 0]])
        assert rest == same


@pytest.mark.parametrize("indices", [[], [4], [-1, 0]])
def test_indices_outside_the_observation_are_refused(indices: list[int]) -> None:
    with pytest.raises(EnvError, match="indices must be some of 0 to 3"):
        selected("CartPole-v1", indices)


def test_an_observation_without_one_axis_is_refused() -> None:
    with pytest.raises(EnvError, match="needs a Box of one axis"):
        selected("FrozenLake-v1", [0])
