"""EpisodeLog: seeds from the stream, executed actions logged, replay compared."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.envs import EpisodeLog, make_env
from rl_training.seeding import reset_seed
from rl_training.types import EnvError


class Recorder(gym.Env[Any, Any]):
    """Remembers the seeds and actions it gets; the observation is a running sum of the actions."""

    drift = 0.0

    def __init__(self, action_space: spaces.Space[Any], length: int = 1000) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = action_space
        self.length = length
        self.seeds: list[int | None] = []
        self.actions: list[Any] = []
        self.sum = np.zeros(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.time = 0
        self.sum[:] = (options or {}).get("start", 0.0)
        return self.sum, {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.time += 1
        self.sum += np.sum(action) + self.drift  # in place: the same array is returned every step
        return self.sum, float(self.sum[0]), self.time >= self.length, False, {"time": self.time}


def test_every_reset_gets_the_seed_of_its_number() -> None:
    env = Recorder(spaces.Discrete(2))
    log = EpisodeLog(env, seed=7, index=3)
    for _ in range(3):
        log.reset()
    assert env.seeds == [reset_seed(7, 3, 0), reset_seed(7, 3, 1), reset_seed(7, 3, 2)]
    assert len(set(env.seeds)) == 3


def test_an_explicit_seed_is_used_and_not_counted() -> None:
    env = Recorder(spaces.Discrete(2))
    log = EpisodeLog(env, seed=7)
    log.reset(seed=11)
    log.reset()
    assert env.seeds == [11, reset_seed(7, 0, 0)]
    assert log.reset_count == 1


def test_seeds_of_neighbouring_runs_and_environments_do_not_meet() -> None:
    seeds = [reset_seed(seed, index, k) for seed in (0, 1) for index in range(4) for k in range(5)]
    assert len(set(seeds)) == len(seeds)


def test_actions_are_executed_as_they_are_logged() -> None:
    env = Recorder(spaces.Box(-1, 1, (2,), np.float32))
    log = EpisodeLog(env)
    log.reset()
    given = np.array([0.1, 0.2])  # float64: 0.1 is another number in float32
    log.step(given)
    executed = env.actions[0]
    assert executed.dtype == np.float32
    executed[:] = 99.0  # an environment that writes into its action changes neither the caller's array nor the log
    assert given.tolist() == [0.1, 0.2]
    np.testing.assert_array_equal(log.state_dict()["actions"], np.array([[0.1, 0.2]], np.float32))


def test_discrete_actions_of_any_type_become_the_space_dtype() -> None:
    env = Recorder(spaces.Discrete(3))
    log = EpisodeLog(env)
    log.reset()
    for action in (2, np.int32(1), 0.0, np.array(2)):
        log.step(action)
    assert [type(action) for action in env.actions] == [np.int64] * 4
    assert log.state_dict()["actions"].tolist() == [2, 1, 0, 2]


def test_the_log_grows_and_starts_anew_with_an_episode() -> None:
    log = EpisodeLog(Recorder(spaces.Discrete(10), length=1000))
    log.reset()
    actions = np.random.default_rng(0).integers(10, size=300)
    for action in actions:
        log.step(action)
    assert log.state_dict()["actions"].tolist() == actions.tolist()
    assert log.episode_steps == 300
    assert log.last_action == actions[-1]
    log.reset()
    assert log.state_dict()["actions"].tolist() == []
    assert log.last_action is None


def test_a_wrong_action_shape_is_named() -> None:
    log = EpisodeLog(Recorder(spaces.Box(-1, 1, (2,), np.float32)), index=4)
    log.reset()
    with pytest.raises(EnvError, match=r"environment 4: action of shape \(1,\), expected \(2,\)"):
        log.step(np.zeros(1))


def test_step_needs_an_open_episode() -> None:
    log = EpisodeLog(Recorder(spaces.Discrete(2), length=1))
    with pytest.raises(EnvError, match="call reset"):
        log.step(0)
    log.reset()
    log.step(0)
    with pytest.raises(EnvError, match="call reset"):
        log.step(0)


def test_resume_continues_the_open_episode_and_the_seeds() -> None:
    live = EpisodeLog(Recorder(spaces.Discrete(5), length=6), seed=1)
    live.reset()
    for _ in range(6):
        live.step(1)
    live.reset()
    for action in (3, 4, 0):
        live.step(action)

    env = Recorder(spaces.Discrete(5), length=6)
    resumed = EpisodeLog(env, seed=1)
    resumed.load_state_dict(live.state_dict())
    obs, info = resumed.reset()
    assert (obs.tolist(), info) == ([7.0], {"time": 3})
    assert env.seeds == [reset_seed(1, 0, 1)]
    for action in (1, 1, 1):
        resumed.step(action)
    resumed.reset()
    assert env.seeds[-1] == reset_seed(1, 0, 2)


def test_state_before_and_between_episodes() -> None:
    fresh = EpisodeLog(Recorder(spaces.Discrete(2), length=2), seed=5)
    assert fresh.state_dict()["open"] is False
    fresh.reset()
    fresh.step(0)
    fresh.step(0)  # the episode is over, the next one has not begun
    state = fresh.state_dict()
    assert state["open"] is False
    env = Recorder(spaces.Discrete(2), length=2)
    resumed = EpisodeLog(env, seed=5)
    resumed.load_state_dict(state)
    resumed.reset()
    assert env.seeds == [reset_seed(5, 0, 1)]


def test_a_loaded_state_that_was_not_used_yet_is_saved_again() -> None:
    live = EpisodeLog(Recorder(spaces.Discrete(2)))
    live.reset()
    live.step(1)
    state = live.state_dict()
    resumed = EpisodeLog(Recorder(spaces.Discrete(2)))
    resumed.load_state_dict(state)
    again = resumed.state_dict()
    assert again["actions"].tolist() == [1]
    assert again["reset_count"] == state["reset_count"] == 1


def test_the_state_is_a_copy() -> None:
    log = EpisodeLog(Recorder(spaces.Discrete(2)))
    log.reset()
    log.step(1)
    state = log.state_dict()
    log.step(1)
    assert state["obs"].tolist() == [1.0]
    assert state["actions"].tolist() == [1]


def test_reset_options_are_replayed() -> None:
    live = EpisodeLog(Recorder(spaces.Discrete(2)))
    live.reset(options={"start": 5.0})
    live.step(1)
    resumed = EpisodeLog(Recorder(spaces.Discrete(2)))
    resumed.load_state_dict(live.state_dict())
    assert resumed.reset()[0].tolist() == [6.0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"obs": np.array([2.5])}, "the observation differs"),
        ({"obs": np.array([2.0], np.float32)}, "the observation differs"),
        ({"reward": 2.5}, "the last reward is 2.0, it was 2.5"),
    ],
)
def test_a_replay_that_arrives_elsewhere_names_the_environment(change: dict[str, Any], why: str) -> None:
    live = EpisodeLog(Recorder(spaces.Discrete(2)), index=2)
    live.reset()
    live.step(1)
    live.step(1)
    resumed = EpisodeLog(Recorder(spaces.Discrete(2)), index=2)
    resumed.load_state_dict({**live.state_dict(), **change})
    with pytest.raises(EnvError, match=rf"environment 2 .*{why}"):
        resumed.reset()


def test_a_replay_that_ends_early_is_an_error() -> None:
    live = EpisodeLog(Recorder(spaces.Discrete(2), length=5))
    live.reset()
    for _ in range(4):
        live.step(1)
    for length, why in ((2, "ended after 2 of 4 steps"), (4, "ended at the last step")):
        resumed = EpisodeLog(Recorder(spaces.Discrete(2), length=length))
        resumed.load_state_dict(live.state_dict())
        with pytest.raises(EnvError, match=why):
            resumed.reset()


def test_a_state_of_another_stack_is_refused() -> None:
    live = make_env("CartPole-v1")
    assert isinstance(live, EpisodeLog)
    live.reset()
    other = EpisodeLog(Recorder(spaces.Discrete(2)))
    with pytest.raises(EnvError, match=r"belongs to TimeLimit<CartPoleEnv> CartPole-v1, this one is Recorder"):
        other.load_state_dict(live.state_dict())


def test_restart_drops_the_open_episode_and_says_so() -> None:
    env = Recorder(spaces.Discrete(2))
    live = EpisodeLog(env, seed=3, strategy="restart")
    live.reset()
    live.step(1)
    state = live.state_dict()
    assert not live.exact
    assert "actions" not in state
    env = Recorder(spaces.Discrete(2))
    resumed = EpisodeLog(env, seed=3, strategy="restart")
    resumed.load_state_dict(state)
    assert resumed.reset()[0].tolist() == [0.0]
    assert env.seeds == [reset_seed(3, 0, 1)]


def test_composite_actions_are_refused() -> None:
    with pytest.raises(EnvError, match="cannot log actions"):
        EpisodeLog(Recorder(spaces.Tuple([spaces.Discrete(2)])))


def test_rendering_passes_through() -> None:
    env = make_env("CartPole-v1", render_mode="rgb_array")
    env.reset()
    frame = env.render()
    assert isinstance(frame, np.ndarray)
    assert (frame.shape, frame.dtype) == ((400, 600, 3), np.uint8)
    env.close()
