"""Goal-conditioned probes: rewards of single goals and of arrays, known values, and their difficulty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.config.schema import EnvConfig
from rl_training.envs import PROBES, make_env

GOAL_PROBES = ("RLProbe/BitFlip-v0", "RLProbe/PointReach-v0")


def play(env: Any, policy: Any) -> tuple[list[float], dict[str, Any], bool, bool]:
    obs, _ = env.reset()
    rewards, terminated, truncated, info = [], False, False, {}
    while not (terminated or truncated):
        obs, reward, terminated, truncated, info = env.step(policy(obs))
        rewards.append(float(reward))
    return rewards, info, terminated, truncated


def wrong_bit(obs: dict[str, Any]) -> int:
    return int((obs["observation"] != obs["desired_goal"]).argmax())


def straight(obs: dict[str, Any]) -> Any:
    return np.clip((obs["desired_goal"] - obs["achieved_goal"]) / 0.2, -1.0, 1.0).astype(np.float32)


def test_flipping_the_wrong_bits_solves_it_in_as_many_steps() -> None:
    env = make_env("RLProbe/BitFlip-v0")
    for _ in range(20):
        obs, _ = env.reset()
        distance = int((obs["observation"] != obs["desired_goal"]).sum())
        assert distance > 0
        rewards = []
        for _ in range(distance):
            obs, reward, terminated, truncated, info = env.step(wrong_bit(obs))
            rewards.append(float(reward))
        assert rewards == [-1.0] * (distance - 1) + [0.0]
        assert (terminated, truncated, info["is_success"]) == (True, False, True)


def test_known_values_of_bit_flip() -> None:
    """V of n wrong bits is -(1 + .9 + ... + .9^(n-2)): n - 1 steps cost 1 each, the last nothing."""
    probe = PROBES["RLProbe/BitFlip-v0"]
    for obs, value in probe.values:
        wrong = int((obs["observation"] != obs["desired_goal"]).sum())
        assert value == pytest.approx(-sum(0.9**i for i in range(wrong - 1)))
    ((obs, action),) = probe.best_actions
    assert wrong_bit(obs) == action


def test_a_random_policy_hardly_ever_solves_fifteen_bits() -> None:
    env = make_env("RLProbe/BitFlip-v0")
    rng = np.random.default_rng(0)
    outcomes = [play(env, lambda obs: int(rng.integers(15))) for _ in range(100)]
    assert [len(rewards) for rewards, *_ in outcomes] == [15] * 100
    assert not any(info["is_success"] for _, info, _, _ in outcomes)
    assert all(truncated and not terminated for _, _, terminated, truncated in outcomes)


def test_going_straight_solves_point_reach_and_staying_keeps_it_solved() -> None:
    env = make_env("RLProbe/PointReach-v0")
    for _ in range(10):
        rewards, info, terminated, truncated = play(env, straight)
        assert len(rewards) == 50
        assert set(rewards[15:]) == {0.0}  # 2 in each direction at most, 0.2 a step
        assert (terminated, truncated, info["is_success"]) == (False, True, True)


def test_the_point_stays_in_the_square() -> None:
    env = make_env("RLProbe/PointReach-v0")
    obs, _ = env.reset()
    for _ in range(20):
        obs, *_ = env.step(np.ones(2, np.float32))
    assert obs["achieved_goal"].tolist() == [1.0, 1.0]
    assert obs["achieved_goal"] is not obs["observation"]


@pytest.mark.parametrize("probe_id", GOAL_PROBES)
def test_arrays_of_goals_are_judged_like_single_ones(probe_id: str) -> None:
    env: Any = make_env(probe_id).unwrapped
    space = env.observation_space["achieved_goal"]
    space.seed(0)
    achieved = np.stack([space.sample().round() for _ in range(40)])
    desired = np.where(np.arange(40)[:, None] % 3 == 0, achieved, achieved[::-1])
    for function in (env.compute_reward, env.compute_terminated):
        together = function(achieved, desired, {})
        assert together.shape == (40,)
        assert together.tolist() == [float(function(a, d, {})) for a, d in zip(achieved, desired, strict=True)]
    assert set(env.compute_reward(achieved, desired, {})) == {0.0, -1.0}


def test_the_reward_of_a_step_is_the_one_that_is_computed() -> None:
    for probe_id in GOAL_PROBES:
        env: Any = make_env(probe_id, EnvConfig(kwargs={"num_bits": 2}) if "Bit" in probe_id else None)
        env.action_space.seed(1)
        obs, _ = env.reset()
        for _ in range(60):
            obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            goals = (obs["achieved_goal"], obs["desired_goal"], {})
            assert reward == env.unwrapped.compute_reward(*goals)
            assert terminated == env.unwrapped.compute_terminated(*goals)
            if terminated or truncated:
                env.reset()
