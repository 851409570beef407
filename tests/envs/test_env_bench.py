"""Measuring an environment: what counts as a step, which vectorizations are tried, and what is recommended."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.config.schema import EnvConfig, TrainConfig
from rl_training.envs import bench, make_vector_env
from rl_training.envs.bench import Player, Rate, StepCost, advise, candidates, duration, measure_single, worker_counts

CHEAP = StepCost(step_us=9.0, reset_us=30.0, episode_length=20.0)
COSTLY = StepCost(step_us=2500.0, reset_us=1e6, episode_length=None)


class OnlyEven(gym.Env[Any, Any]):
    """Allows action 0 and 2 in turn, and ends after 3 steps."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert action == 2 * (self.time % 2), f"action {action} is forbidden at {self.time}"
        self.time += 1
        return np.zeros(1, np.float32), 0.0, self.time == 3, False, {}

    def action_masks(self) -> Any:
        allowed = np.zeros(4, np.int8)
        allowed[2 * (self.time % 2)] = 1
        return allowed


@pytest.mark.parametrize(
    ("num_envs", "cores", "workers"),
    [(1, 8, []), (4, 1, [1]), (4, 2, [1, 2]), (16, 6, [1, 2, 4, 6]), (3, 8, [1, 2]), (8, 8, [1, 2, 4, 8])],
)
def test_worker_counts(num_envs: int, cores: int, workers: list[int]) -> None:
    assert worker_counts(num_envs, cores) == workers


def test_every_way_is_a_candidate() -> None:
    assert list(candidates([1, 4], cores=2)) == [
        (1, ("sync", 0)),
        (1, ("native", 0)),
        (4, ("sync", 0)),
        (4, ("async", 1)),
        (4, ("async", 2)),
        (4, ("native", 0)),
    ]


def test_sync_is_advised_unless_another_way_is_a_fifth_faster() -> None:
    rates = [
        Rate(4, "sync", 0, 100.0),
        Rate(4, "async", 1, 40.0),
        Rate(4, "async", 2, 50.0),
        Rate(4, "native", 0, 119.0),
    ]
    advice = advise(rates, CHEAP)
    assert (advice.vectorization, advice.num_workers, advice.times_sync) == ("sync", 0, 1.0)
    assert advice.reason == "a step costs 9.0 µs; workers 0.5 times its speed, native 1.2 times its speed"
    advice = advise([*rates[:3], Rate(4, "native", 0, 120.0)], CHEAP)
    assert (advice.vectorization, advice.times_sync) == ("native", 1.2)
    assert advice.reason.startswith("1.2 times as fast as sync: one call steps all of them")


def test_workers_are_advised_with_their_number() -> None:
    rates = [Rate(8, "sync", 0, 400.0), Rate(8, "async", 2, 720.0), Rate(8, "async", 4, 700.0)]
    advice = advise(rates, COSTLY)
    assert (advice.num_envs, advice.vectorization, advice.num_workers, advice.times_sync) == (8, "async", 2, 1.8)
    assert advice.reason == "1.8 times as fast as sync: a step of 2.5 ms outweighs a message to the workers"


def test_one_environment_without_a_native_one_has_nothing_to_compare() -> None:
    assert advise([Rate(1, "sync", 0, 100.0)], CHEAP).reason == "a step costs 9.0 µs"


def test_durations() -> None:
    assert [duration(x) for x in (9.14, 999.0, 2500.0, 1.5e6)] == ["9.1 µs", "999.0 µs", "2.5 ms", "1.5 s"]


def test_a_step_that_only_resets_is_not_counted() -> None:
    """Gymnasium's NumPy CartPole spends a row on each reset; one step per `play(0)`."""
    env = make_vector_env(TrainConfig(env=EnvConfig(vectorization="native")), 8)
    player = Player(env, np.random.default_rng(0))
    counted = resets = 0
    for _ in range(100):
        resets += int(player.ended.sum())
        counted += player.play(0.0)[0]
    assert resets > 10
    assert counted == 100 * 8 - resets


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_in_the_other_modes_every_row_is_a_step(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3, autoreset_mode=mode)
    player = Player(env, np.random.default_rng(0))
    assert sum(player.play(0.0)[0] for _ in range(60)) == 60 * 3
    env.close()


def test_masks_are_kept() -> None:
    cost = measure_single(TrainConfig(env_id=f"{__name__}:OnlyEven"), 0.02)
    assert cost.episode_length == pytest.approx(3, abs=0.5)
    player = Player(make_vector_env(TrainConfig(env_id=f"{__name__}:OnlyEven"), 2), np.random.default_rng(0))
    assert sum(player.play(0.0)[0] for _ in range(20)) == 40


def test_an_episode_that_does_not_end_is_reset_once() -> None:
    cost = measure_single(TrainConfig(env_id="Pendulum-v1"), 1e-6)
    assert cost.episode_length is None
    assert cost.reset_us > 0


def test_the_whole_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "usable_cores", lambda: 1)
    heard: list[str] = []
    speed = bench.measure_env(TrainConfig(env_id="CartPole-v1"), [1, 2], 0.02, heard.append)
    assert [(rate.num_envs, rate.name) for rate in speed.rates] == [
        (1, "sync"),
        (1, "native"),
        (2, "sync"),
        (2, "async, 1 worker"),
        (2, "native"),
    ]
    assert heard[:3] == ["one environment", "1 environment, sync", "1 environment, native"]
    assert heard[3:] == ["2 environments, sync", "2 environments, async, 1 worker", "2 environments, native"]
    assert [advice.num_envs for advice in speed.advice] == [1, 2]
    assert all(rate.steps_per_second > 0 for rate in speed.rates)
    assert speed.skipped == {}
