"""One conformance test per environment family: cut anywhere, replayed in a fresh copy, equal bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from rl_training.config.schema import EnvConfig, WrapperConfig
from rl_training.envs import PROBES, EpisodeLog, list_envs, make_env, replay_difference, replay_is_exact

QUICK = {
    "classic control": ["CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1"],
    "toy text": ["Blackjack-v1", "FrozenLake-v1", "CliffWalkingSlippery-v1", "Taxi-v4"],
    "box2d": ["LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3"],
    "mujoco": ["InvertedPendulum-v5", "Hopper-v5", "HalfCheetah-v5"],
    "dm_control": ["dm_control/cartpole-swingup-v0", "dm_control/cheetah-run-v0"],
}
WRAPPED = {
    "MiniGrid-DoorKey-6x6-v0": "minigrid",
    "MiniGrid-MemoryS7-v0": "minigrid",
    "BabyAI-GoToLocal-v0": "minigrid",
    "BreakoutNoFrameskip-v4": "atari",
    "SpaceInvadersNoFrameskip-v0": "atari",
}
"""Environments that networks can only read through a wrapper."""


def wrapped(env_id: str, seed: int = 3) -> gym.Env[Any, Any]:
    return make_env(env_id, EnvConfig(wrappers=(WrapperConfig(WRAPPED[env_id]),)), seed=seed)


@pytest.mark.parametrize("env_id", [env_id for ids in QUICK.values() for env_id in ids])
def test_family(env_id: str) -> None:
    assert replay_difference(partial(make_env, env_id, seed=3), cuts=4, steps=120) is None


@pytest.mark.parametrize("env_id", WRAPPED)
def test_family_with_its_wrapper(env_id: str) -> None:
    assert replay_difference(partial(wrapped, env_id), cuts=3, steps=120) is None


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "BipedalWalker-v3", "dm_control/cheetah-run-v0", *WRAPPED])
def test_twenty_cuts(env_id: str) -> None:
    make = partial(wrapped, env_id) if env_id in WRAPPED else partial(make_env, env_id, seed=3)
    assert replay_difference(make, cuts=20, steps=200) is None


@pytest.mark.parametrize("env_id", sorted(PROBES))
def test_probe(env_id: str) -> None:
    assert replay_difference(partial(make_env, env_id), cuts=3, steps=20) is None


def test_wrappers_that_live_within_an_episode_are_rebuilt() -> None:
    cfg = EnvConfig(
        frame_stack=3,
        max_episode_steps=40,
        wrappers=(
            WrapperConfig("sticky_action", {"repeat_action_probability": 0.3}),
            WrapperConfig("time_aware"),
            WrapperConfig("episode_statistics"),
        ),
    )
    assert replay_is_exact(partial(make_env, "CartPole-v1", cfg), cuts=4, steps=60)


def test_bipedal_walker_needs_its_new_world() -> None:
    def unrepaired() -> EpisodeLog:
        return EpisodeLog(gym.make("BipedalWalker-v3", disable_env_checker=True))

    assert not replay_is_exact(unrepaired, cuts=6, steps=150)


def test_statistics_that_survive_a_reset_are_declared() -> None:
    cfg = EnvConfig(wrappers=(WrapperConfig("normalize_obs"),))
    assert replay_difference(partial(make_env, "Pendulum-v1", cfg)) == "it declares resume_strategy 'restart'"


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(set(QUICK) - {"dm_control"}))  # whose ids are known when it is imported
def test_every_environment_of_a_family(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log into the working directory
    (suite,) = [suite for suite in list_envs() if suite.name == family]
    differences = {
        (env_id, seed): replay_difference(partial(make_env, env_id, seed=seed), cuts=6, steps=steps, seed=seed)
        for env_id in suite.ids
        for steps in [40 if env_id.startswith("CarRacing") else 300]
        for seed in (0, 1)
    }
    assert set(differences.values()) == {None}, differences
