"""Training and evaluation must see the same spaces; where they would not, a run says so before it starts."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv

from rl_training.assembly.build import build_host
from rl_training.config.loading import parse_config
from rl_training.config.schema import EnvConfig, TrainConfig, WrapperConfig
from rl_training.envs import make_vector_env
from rl_training.envs.factory import check_evaluation_spaces
from rl_training.types import ConfigError


class WideVector(CartPoleVectorEnv):
    """A vector environment that gives more than the environment of the same name."""

    def __init__(self, num_envs: int = 1, max_episode_steps: int = 500, render_mode: str | None = None) -> None:
        super().__init__(num_envs, max_episode_steps, render_mode)
        self.single_observation_space = spaces.Box(-1, 1, (6,), np.float32)


@pytest.fixture
def wide() -> Any:
    gym.register("Wide/Pole-v0", entry_point=CartPoleEnv, vector_entry_point=WideVector, max_episode_steps=500)
    yield
    gym.registry.pop("Wide/Pole-v0")


def checked(cfg: TrainConfig) -> None:
    check_evaluation_spaces(cfg, make_vector_env(cfg))


def test_both_spaces_are_named(wide: None) -> None:
    cfg = TrainConfig(env_id="Wide/Pole-v0", env=EnvConfig(vectorization="native"))
    with pytest.raises(
        ConfigError, match=r"observations of training are Box\(6,\) float32, those of evaluation Box\(4,\) float32"
    ):
        checked(cfg)


def test_a_wrapper_for_training_alone_that_changes_the_space() -> None:
    with pytest.raises(ConfigError, match=r"of training are Box\(5,\) float64, those of evaluation Box\(4,\)"):
        checked(TrainConfig(env=EnvConfig(wrappers=(WrapperConfig("time_aware", train_only=True),))))


def test_equal_spaces_pass() -> None:
    checked(TrainConfig(env=EnvConfig(vectorization="native")))
    checked(TrainConfig(env=EnvConfig(wrappers=(WrapperConfig("clip_reward", train_only=True),))))


def test_a_run_is_refused_when_it_is_built(wide: None) -> None:
    native = {"env_id": "Wide/Pole-v0", "env": {"vectorization": "native"}}
    with pytest.raises(ConfigError, match="those of evaluation"):
        build_host(parse_config(native))
    build_host(parse_config({**native, "training": {"num_eval_episodes": 0}})).close()
