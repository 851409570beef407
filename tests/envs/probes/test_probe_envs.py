"""The probe environments agree with `PROBES`: values by dynamic programming and by playing the optimal policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rl_training.config.schema import EnvConfig
from rl_training.envs import PROBES, check_env, make_env
from rl_training.envs.probes import LQR_GAIN
from rl_training.types import ConfigError, EnvError


def key(obs: Any) -> str:
    parts = obs.items() if isinstance(obs, dict) else [("", obs)]
    return str([(name, np.asarray(value).tolist()) for name, value in parts if name != "action_mask"])


def best_policy(probe_id: str) -> Callable[[Any], Any]:
    known = {key(obs): action for obs, action in PROBES[probe_id].best_actions}
    return lambda obs: known.get(key(obs), 0)


def play(probe_id: str, policy: Callable[[Any], Any], episodes: int) -> tuple[list[float], dict[str, float]]:
    """Undiscounted returns, and the mean discounted return from every observation that occurred."""
    gamma = PROBES[probe_id].gamma
    env = make_env(probe_id)
    returns, after = [], {}
    for _ in range(episodes):
        obs, _ = env.reset()
        seen, rewards, ended = [], [], False
        while not ended:
            seen.append(key(obs))
            obs, reward, terminated, truncated, _ = env.step(policy(obs))
            rewards.append(float(reward))
            ended = terminated or truncated
        returns.append(sum(rewards))
        value = 0.0
        for name, reward in zip(reversed(seen), reversed(rewards), strict=True):
            value = reward + gamma * value
            after.setdefault(name, []).append(value)
    return returns, {name: float(np.mean(values)) for name, values in after.items()}


EPISODIC = [
    name for name, probe in PROBES.items() if probe.max_episode_steps is None and probe.values and "Target" not in name
]


@pytest.mark.parametrize("probe_id", EPISODIC)
def test_values_of_the_best_policy(probe_id: str) -> None:
    probe = PROBES[probe_id]
    returns, after = play(probe_id, best_policy(probe_id), 20)
    for obs, value in probe.values:
        assert after[key(obs)] == pytest.approx(value, abs=1e-6)
    if probe_id != "RLProbe/RewardIsObs-v0":
        assert set(returns) == {probe.best_return}


def test_the_chain_has_the_published_values() -> None:
    assert [value for _, value in PROBES["RLProbe/Chain-v0"].values] == pytest.approx([0.6561, 0.729, 0.81, 0.9, 1.0])
    assert [value for _, value in PROBES["RLProbe/TwoSteps-v0"].values] == [0.9, 1.0]


def test_one_state_is_worth_ten_because_a_time_limit_is_no_end() -> None:
    env = make_env("RLProbe/OneState-v0")
    env.reset()
    steps = [env.step(0) for _ in range(8)]
    assert [step[1] for step in steps] == [1.0] * 8
    assert [step[2:4] for step in steps] == [(False, False)] * 7 + [(False, True)]
    ((_, value),) = PROBES["RLProbe/OneState-v0"].values
    assert value == pytest.approx(1 / (1 - 0.9))


def test_stay_switch_solves_the_bellman_equation() -> None:
    probe = PROBES["RLProbe/StaySwitch-v0"]
    env: Any = make_env("RLProbe/StaySwitch-v0").unwrapped
    q = np.zeros((2, 2))
    model = {}
    for state in (0, 1):
        for action in (0, 1):
            env.state = state
            obs, reward, *_ = env.step(action)
            model[state, action] = int(obs.argmax()), reward
    for _ in range(500):
        q = np.array(
            [[reward + 0.9 * q[after].max() for after, reward in (model[s, a] for a in (0, 1))] for s in (0, 1)]
        )
    for obs, expected in probe.q_values:
        assert q[obs.argmax()] == pytest.approx(expected, abs=1e-6)
    for obs, value in probe.values:
        assert q[obs.argmax()].max() == pytest.approx(value, abs=1e-6)
    starts = {int(make_env("RLProbe/StaySwitch-v0", seed=seed).reset()[0].argmax()) for seed in range(10)}
    assert starts == {0, 1}


def test_the_soft_bandits_policy_is_the_softmax_of_its_rewards() -> None:
    probe = PROBES["RLProbe/SoftBandit-v0"]
    ((_, q),) = probe.q_values
    weights = np.exp(np.array(q) / probe.temperature)
    assert probe.action_probabilities == pytest.approx(weights / weights.sum(), abs=1e-6)


def test_the_linear_quadratic_gain_solves_the_riccati_equation() -> None:
    p = 1.0
    for _ in range(200):
        p = 1 + 0.9 * p - (0.9 * p) ** 2 / (1 + 0.9 * p)
    assert 0.9 * p / (1 + 0.9 * p) == pytest.approx(LQR_GAIN, abs=1e-6)
    for obs, value in PROBES["RLProbe/LQR-v0"].values:
        assert value == pytest.approx(-p * obs[0] ** 2, abs=1e-6)
    env: Any = make_env("RLProbe/LQR-v0")
    env.reset()
    env.unwrapped.x = 1.0
    total = 0.0
    for step in range(32):
        total += 0.9**step * env.step(np.array([-LQR_GAIN * env.unwrapped.x]))[1]
    assert total == pytest.approx(-(1 + LQR_GAIN), abs=1e-5)


def test_the_target_is_half_the_observation() -> None:
    env = make_env("RLProbe/Target-v0")
    obs, _ = env.reset()
    assert env.step(0.5 * obs)[1] == pytest.approx(0.0, abs=1e-12)
    obs, _ = env.reset()
    assert env.step(0.5 * obs + 0.2)[1] == pytest.approx(-0.04, abs=1e-6)


def test_the_cue_is_shown_once_and_asked_for_after_ten_blanks() -> None:
    env = make_env("RLProbe/CueMemory-v0")
    cues = set()
    for _ in range(10):
        obs, _ = env.reset()
        cue = obs[0]
        cues.add(float(cue))
        rows = []
        for _ in range(12):
            obs, reward, terminated, *_ = env.step(int(cue > 0))
            rows.append((obs.tolist(), reward, terminated))
        assert rows[:10] == [([0.0, 0.0], 0.0, False)] * 10
        assert rows[10] == ([0.0, 1.0], 0.0, False)
        assert rows[11][1:] == (1.0, True)
    assert cues == {-1.0, 1.0}


def test_dict_obs_needs_both_parts() -> None:
    returns, _ = play("RLProbe/DictObs-v0", best_policy("RLProbe/DictObs-v0"), 30)
    assert returns == [1.0] * 30
    returns, _ = play("RLProbe/DictObs-v0", lambda obs: 2 * obs["colour"], 60)
    assert 0.2 < np.mean(returns) < 0.8


def test_masked_arms() -> None:
    returns, _ = play("RLProbe/MaskedArms-v0", lambda obs: int(np.flatnonzero(obs["action_mask"])[-1]), 400)
    assert set(returns) == {0.5, 1.0}
    assert np.mean(returns) == pytest.approx(0.75, abs=0.06)
    env = make_env("RLProbe/MaskedArms-v0")
    while env.reset()[0]["action_mask"][2]:
        pass
    with pytest.raises(EnvError, match="the masked action 2 was taken"):
        env.step(2)


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_counting(end: str) -> None:
    env = make_env("RLProbe/Counting-v0", EnvConfig(kwargs={"end": end}))
    assert env.reset()[0].tolist() == [0.0]
    steps = [env.step(0) for _ in range(3)]
    assert [(step[0].tolist(), step[1]) for step in steps] == [([1.0], 1.0), ([2.0], 2.0), ([3.0], 3.0)]
    assert steps[2][2:4] == ((True, False) if end == "terminated" else (False, True))
    with pytest.raises(ConfigError, match="end must be"):
        make_env("RLProbe/Counting-v0", EnvConfig(kwargs={"end": "never"}))


@pytest.mark.parametrize("probe_id", sorted(PROBES))
def test_probes_keep_the_gymnasium_contract(probe_id: str) -> None:
    assert check_env(probe_id).errors == []
    assert PROBES[probe_id].about


@pytest.mark.parametrize("kind", ["vector", "pixels"])
def test_catch_pays_who_stands_under_the_ball(kind: str) -> None:
    """A policy that reads the observation catches every ball; one that stays catches those of the middle column."""
    env = make_env("RLProbe/Catch-v0", EnvConfig(kwargs={"obs": kind}))

    def grid(obs: Any) -> Any:
        middle_i, middle_j = ((np.arange(side) * 32 + 16) // side for side in (10, 5))
        return obs.reshape(10, 5) if kind == "vector" else obs[middle_i][:, middle_j, 0] / 255

    returns = {"follow": [], "stay": []}
    for seed in range(40):
        for name, gains in returns.items():
            obs, ended, total = env.reset(seed=seed)[0], False, 0.0
            start = int(np.argmax(grid(obs)[0]))
            while not ended:
                paddle = int(np.argmax(grid(obs)[-1]))
                action = 1 + int(np.sign(start - paddle)) if name == "follow" else 1
                obs, reward, ended, _, _ = env.step(action)
                total += float(reward)
            gains.append((total, start))
    assert {total for total, _ in returns["follow"]} == {1.0}
    assert all((total == 1.0) == (start == 2) for total, start in returns["stay"])
    assert {start for _, start in returns["stay"]} == set(range(5))


def test_catch_refuses_an_unknown_kind_of_observation() -> None:
    with pytest.raises(ConfigError, match=r"'vector' or 'pixels', not 'image'"):
        make_env("RLProbe/Catch-v0", EnvConfig(kwargs={"obs": "image"}))


def test_only_one_of_all_dives_finds_the_treasure() -> None:
    env = make_env("RLProbe/DeepSea-v0", EnvConfig(kwargs={"size": 5, "mapping_seed": 1}))
    returns = []
    for number in range(32):
        env.reset(seed=0)
        steps = [env.step((number >> t) & 1) for t in range(5)]
        assert [step[2] for step in steps] == [False] * 4 + [True]
        assert not steps[-1][0].any()
        returns.append(sum(step[1] for step in steps))
    assert sorted(returns)[-1] == pytest.approx(0.99)
    assert sorted(returns)[-2] <= 1e-6


@pytest.mark.parametrize("continuous", [False, True])
def test_the_hidden_cue_pays_itself_and_the_match(continuous: bool) -> None:
    env = make_env("RLProbe/HiddenCue-v0", EnvConfig(kwargs={"key": "state", "continuous": continuous}))
    for seed in range(6):
        obs, _ = env.reset(seed=seed)
        cue, right = float(obs["state"][0]), seed % 2 == 0
        action = (1 if cue > 0 else -1) * (1 if right else -1)
        step = env.step(np.array([action], np.float32) if continuous else int(action > 0))
        assert step[1] == pytest.approx(cue + right)
        assert step[2]
