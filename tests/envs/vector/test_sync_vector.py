"""The sync vector environment: autoreset modes, info layout, fresh arrays, resume."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.checkpointing.state_tree import flatten, unflatten
from rl_training.config.schema import EnvConfig, TrainConfig
from rl_training.envs import make_env, make_vector_env
from rl_training.envs.probes.control import Counting
from rl_training.types import ConfigError


def counting(num_envs: int, end: str) -> Any:
    return make_vector_env(TrainConfig(env_id="RLProbe/Counting-v0", env=EnvConfig(kwargs={"end": end})), num_envs)


def gymnasium_counting(num_envs: int, end: Any, mode: AutoresetMode) -> SyncVectorEnv[Any, Any]:
    return SyncVectorEnv([lambda: Counting(end)] * num_envs, autoreset_mode=mode)


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_same_step_gives_final_observations_beside_first_ones(end: str) -> None:
    envs = counting(2, end)
    obs, infos = envs.reset()
    assert obs.tolist() == [[0.0], [0.0]]
    assert infos["count"].tolist() == [0, 0]
    seen = []
    for _ in range(12):
        obs, rewards, terminated, truncated, infos = envs.step(np.zeros(2, np.int64))
        final = infos["final_obs"][0].tolist() if "final_obs" in infos else None
        seen.append((obs[0, 0], rewards[0], bool(terminated[0]), bool(truncated[0]), final))
    last = (0.0, 3.0, end == "terminated", end == "truncated", [3.0])
    assert seen == [(1.0, 1.0, False, False, None), (2.0, 2.0, False, False, None), last] * 4
    assert infos["_final_obs"].tolist() == [True, True]
    assert infos["final_info"]["count"].tolist() == [3, 3]
    assert infos["count"].tolist() == [0, 0]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_next_step_slips_in_a_reset_row(end: str) -> None:
    envs = gymnasium_counting(2, end, AutoresetMode.NEXT_STEP)
    envs.reset()
    rows = []
    for _ in range(12):
        obs, rewards, terminated, truncated, _ = envs.step(np.zeros(2, np.int64))
        rows.append((obs[0, 0], rewards[0], bool(terminated[0] or truncated[0])))
    assert rows == [(1.0, 1.0, False), (2.0, 2.0, False), (3.0, 3.0, True), (0.0, 0.0, False)] * 3


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_disabled_waits_for_a_masked_reset(end: str) -> None:
    envs = gymnasium_counting(2, end, AutoresetMode.DISABLED)
    envs.reset()
    rows = []
    for _ in range(12):
        obs, rewards, terminated, truncated, _ = envs.step(np.zeros(2, np.int64))
        ended = terminated | truncated
        rows.append((obs[0, 0], rewards[0], bool(ended[0])))
        if ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})
            assert obs.tolist() == [[0.0], [0.0]]
    assert rows == [(1.0, 1.0, False), (2.0, 2.0, False), (3.0, 3.0, True)] * 4


def test_everything_equals_gymnasiums_own_sync_vector() -> None:
    for env_id, size in (("CartPole-v1", 2), ("RLProbe/DictObs-v0", 4), ("Taxi-v4", 6)):
        cfg = TrainConfig(env_id=env_id, seed=3)
        ours = make_vector_env(cfg, 3)
        makers = [lambda i=i, env_id=env_id: make_env(env_id, seed=3, index=i) for i in range(3)]
        theirs: Any = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        assert_same(ours.reset(), theirs.reset())
        for actions in np.random.default_rng(0).integers(size, size=(100, 3)):
            assert_same(ours.step(actions), theirs.step(actions))


def assert_same(left: Any, right: Any) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, tuple) or (isinstance(left, np.ndarray) and left.dtype == object):
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right), strict=True)


class SameArray(gym.Env[Any, Any]):
    """Always returns the same array and writes into it, at reset too."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 100, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.obs = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.obs[:] = 0.0
        return self.obs, {}

    def step(self, action: Any) -> Any:
        self.obs += 1.0
        return self.obs, 1.0, bool(self.obs[0] == 3), False, {}


def test_an_environment_that_reuses_its_array_gives_distinct_observations() -> None:
    envs = make_vector_env(TrainConfig(), 2, env_fn=SameArray)
    kept = [envs.reset()[0]]
    finals = []
    for _ in range(6):
        obs, *_, infos = envs.step(np.zeros(2, np.int64))
        kept.append(obs)
        finals += [infos["final_obs"][0]] if "final_obs" in infos else []
    assert [float(obs[0, 0]) for obs in kept] == [0, 1, 2, 0, 1, 2, 0]
    assert [final.tolist() for final in finals] == [[3.0, 3.0], [3.0, 3.0]]


def test_masked_reset_with_explicit_seeds() -> None:
    envs = make_vector_env(TrainConfig(), 2)
    before, _ = envs.reset()
    seeds: Any = [None, 5]
    after, _ = envs.reset(seed=seeds, options={"reset_mask": np.array([False, True])})
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_array_equal(after[1], gym.make("CartPole-v1").reset(seed=5)[0])


def test_a_wrong_number_of_actions_is_refused() -> None:
    envs = make_vector_env(TrainConfig(), 2)
    envs.reset()
    with pytest.raises(ValueError, match="3 actions for 2 environments"):
        envs.step(np.zeros(3, np.int64))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "RLProbe/MaskedArms-v0"])
def test_resume_continues_every_environment(env_id: str) -> None:
    cfg = TrainConfig(env_id=env_id, seed=9)
    live: Any = make_vector_env(cfg, 3)
    live.reset()
    rng = np.random.default_rng(1)
    for actions in rng.integers(2, size=(57, 3)):
        obs, *_ = live.step(actions)
    assert live.exact
    state = unflatten(flatten(live.state_dict()))  # as a checkpoint would keep it
    resumed: Any = make_vector_env(cfg, 3, state=state)
    assert_same(resumed.reset()[0], obs)
    for actions in rng.integers(2, size=(80, 3)):
        assert_same(resumed.step(actions), live.step(actions))


def test_the_number_of_environments_cannot_change_at_resume() -> None:
    live: Any = make_vector_env(TrainConfig(), 3)
    live.reset()
    with pytest.raises(ConfigError, match=r"has 3 environments, this one 2; resume keeps env\.num_envs"):
        make_vector_env(TrainConfig(), 2, state=live.state_dict())


def test_environment_i_does_not_depend_on_how_many_there_are() -> None:
    two, four = (make_vector_env(TrainConfig(seed=5), n) for n in (2, 4))
    np.testing.assert_array_equal(two.reset()[0], four.reset()[0][:2])
    for actions in np.random.default_rng(0).integers(2, size=(100, 4)):
        left, right = two.step(actions[:2]), four.step(actions)
        np.testing.assert_array_equal(left[0], right[0][:2])
