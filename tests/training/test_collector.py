"""The collector: the same transitions whatever the autoreset mode, and nothing lost between rollouts."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rl_training.algorithms.random import RandomAgent, RandomConfig
from rl_training.build_context import BuildContext
from rl_training.envs.probes.control import Counting
from rl_training.training.collector import Collector
from rl_training.types import ActResult, BoxSpec, Carry, DiscreteSpec, Obs, VectorStep

BOX = BoxSpec(np.zeros(1, np.float32), np.full(1, 3, np.float32), np.dtype(np.float32))


def agent() -> RandomAgent:
    return RandomAgent(BuildContext(BOX, DiscreteSpec(2)), RandomConfig())


class ListSink:
    """Keeps every valid transition of environment 0 as numbers."""

    def __init__(self) -> None:
        self.transitions: list[tuple[Any, ...]] = []
        self.steps: list[VectorStep] = []

    def begin(self, obs: Obs, carry: Carry) -> None:
        assert not isinstance(obs, dict)

    def store(self, step: VectorStep) -> None:
        self.steps.append(step)
        for i in np.flatnonzero(step.valid):
            row = (step.obs[i, 0], step.next_obs[i, 0], step.rewards[i], step.terminated[i], step.truncated[i])
            self.transitions.append((int(i), *(float(x) for x in row), bool(step.is_first[i])))


def make_counting(end: str) -> gym.Env[Any, Any]:
    return Counting(end=end)


class Terminating:
    def __init__(self, end: str) -> None:
        self.end = end

    def __call__(self) -> gym.Env[Any, Any]:
        return make_counting(self.end)


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("vector", ["sync", "async"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_every_autoreset_mode_gives_the_same_transitions(end: str, vector: str, mode: AutoresetMode):
    make = SyncVectorEnv if vector == "sync" else AsyncVectorEnv
    env = make([Terminating(end)], autoreset_mode=mode)
    try:
        sink = ListSink()
        stats = Collector(env, agent(), np.random.default_rng(0)).collect(12, sink)
    finally:
        env.close()
    ended = (1.0, 0.0) if end == "terminated" else (0.0, 1.0)
    episode = [
        (0, 0.0, 1.0, 1.0, 0.0, 0.0, True),
        (0, 1.0, 2.0, 2.0, 0.0, 0.0, False),
        (0, 2.0, 3.0, 3.0, *ended, False),
    ]
    count = 3 if mode is AutoresetMode.NEXT_STEP else 4
    assert sink.transitions == episode * count
    assert stats.env_steps == 3 * count
    assert [(e.episode_return, e.length, e.terminated) for e in stats.episodes] == [
        (6.0, 3, end == "terminated")
    ] * count


class SameArray(gym.Env[Any, Any]):
    """Returns one and the same array object every step, as some simulators do."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.array = np.zeros(1, np.float32)
        return self.array, {}

    def step(self, action: Any) -> Any:
        self.array += 1
        return self.array, 0.0, False, False, {}


class SharedBufferVector(SyncVectorEnv):
    """A vector environment that hands out its own buffer, uncopied."""

    def __init__(self) -> None:
        super().__init__([SameArray], copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


def test_an_environment_that_reuses_its_array_still_gives_distinct_observations():
    sink = ListSink()
    Collector(SharedBufferVector(), agent(), np.random.default_rng(0)).collect(5, sink)
    assert [t[1:3] for t in sink.transitions] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert [float(step.obs[0, 0]) for step in sink.steps] == [0, 1, 2, 3, 4]


class Reporting(Counting):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, {**info, "is_success": terminated, "fuel": 7.5, "name": "x"}


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_success_and_asked_for_infos_of_the_last_step_are_kept(mode: AutoresetMode):
    env = SyncVectorEnv([Reporting, Reporting], autoreset_mode=mode)
    collector = Collector(env, agent(), np.random.default_rng(0), info_keys=("fuel", "name", "absent"))
    stats = collector.collect(3, ListSink())
    assert [episode.info for episode in stats.episodes] == [{"success": 1.0, "fuel": 7.5}] * 2


def test_episodes_span_rollouts():
    env = SyncVectorEnv([Terminating("terminated")], autoreset_mode=AutoresetMode.SAME_STEP)
    collector = Collector(env, agent(), np.random.default_rng(0))
    returns = [collector.collect(2, ListSink()).returns for _ in range(3)]
    assert returns == [[], [6.0], [6.0]]


class Fixed:
    """Always the same action."""

    def __init__(self, action: int) -> None:
        self.action = action

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def act(self, obs: Obs, carry: Carry, is_first: Any, rng: Any, *, deterministic: bool = False) -> ActResult:
        actions = np.full(len(is_first), self.action)
        return ActResult(actions, actions, carry)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


def test_another_policy_acts_only_where_it_is_given():
    env = SyncVectorEnv([Terminating("terminated")], autoreset_mode=AutoresetMode.SAME_STEP)
    collector, sink = Collector(env, Fixed(0), np.random.default_rng(0)), ListSink()
    collector.collect(2, sink)
    collector.collect(2, sink, Fixed(1))
    collector.collect(1, sink)
    assert [int(step.actions[0]) for step in sink.steps] == [0, 0, 1, 1, 0]


def test_watchers_see_every_step_after_it_was_stored():
    env = SyncVectorEnv([Terminating("terminated")], autoreset_mode=AutoresetMode.SAME_STEP)
    collector, sink = Collector(env, agent(), np.random.default_rng(0)), ListSink()
    seen: list[tuple[VectorStep, int]] = []
    collector.collect(1, sink)
    collector.watch(lambda step: seen.append((step, len(sink.steps))))
    collector.collect(3, sink)
    assert [step for step, _ in seen] == sink.steps[1:]
    assert [stored for _, stored in seen] == [2, 3, 4]
