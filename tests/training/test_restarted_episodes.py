"""Runs whose environments cannot be resumed exactly: the open episodes are dropped, and nothing of them goes on."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config
from rl_training.numerics.returns import running_returns

LENGTH = 7


class Restarting(gym.Env[Any, Any]):
    """Episodes of 7 steps with reward 1; what it saw before is gone when a run is resumed."""

    resume_strategy = "restart"
    observation_space = spaces.Box(0.0, 1000.0, (1,), np.float32)
    episodes = 0

    def __init__(self, continuous: bool = False) -> None:
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else spaces.Discrete(2)

    def _obs(self) -> Any:
        return np.array([100 * self.episodes + self.time], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.episodes += 1
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self._obs(), 1.0, False, self.time == LENGTH, {}


class Replaying(Restarting):
    resume_strategy = "replay"


NETWORK = {name: {"hidden_dims": [4]} for name in ("actor", "critic")}
OFF_POLICY = {"learning_starts": 1000, "n_step": 3, "batch_size": 8}
CASES: dict[str, dict[str, Any]] = {
    "ppo": {"algo": "ppo", "hparams": {"num_steps": 10, "num_minibatches": 1, "num_epochs": 1}},
    "a2c": {"algo": "a2c", "hparams": {"num_steps": 10}},
    "dqn": {"algo": "dqn", "hparams": OFF_POLICY, "buffer": {"size": 4000}},
    "ppo in jax": {"algo": "ppo", "hparams": {"num_steps": 10, "num_minibatches": 1}, "backend": "jax", "lane": "host"},
}


def trainer(case: str, env_class: type = Restarting, **env: Any) -> Any:
    given = {"env_id": "CartPole-v1", "env": {"num_envs": 2, **env}, "network": NETWORK, **CASES[case]}
    return build_trainer(parse_config(given), env_class)


def resumed(case: str, env_class: type = Restarting, **env: Any) -> Any:
    """A trainer that took one step, and another one that goes on from its state."""
    before, after = trainer(case, env_class, **env), trainer(case, env_class, **env)
    before.train_step()
    assert before.collector.lengths.all()
    after.load_state_dict(before.state_dict())
    before.close()
    return after


@pytest.mark.parametrize("case", CASES)
def test_the_next_episodes_are_counted_from_their_beginning(case: str) -> None:
    """They were reported as longer than any episode is: with the steps and the reward of the ones dropped."""
    going_on = resumed(case)
    assert not going_on.exact
    assert going_on.collector.lengths.tolist() == [0, 0]
    assert going_on.collector.is_first.all()
    going_on.train_step()
    episodes = going_on.episodes
    assert episodes
    assert {(episode.length, episode.episode_return) for episode in episodes} == {(LENGTH, float(LENGTH))}
    going_on.close()


@pytest.mark.parametrize("case", ["ppo", "dqn"])
def test_environments_that_can_be_resumed_go_on(case: str) -> None:
    before, going_on = trainer(case, Replaying), resumed(case, Replaying)
    before.train_step()
    assert going_on.exact
    assert going_on.collector.lengths.tolist() == before.collector.lengths.tolist() != [0, 0]
    if case == "dqn":
        assert going_on.buffer.state_dict()["rows"].stop == before.buffer.state_dict()["rows"].stop
    for one in (before, going_on):
        one.close()


def test_replayed_windows_end_where_the_run_was_stopped() -> None:
    going_on = resumed("dqn")
    written = going_on.progress.env_steps
    going_on.train_step()
    batch = going_on.buffer.sample(4000)
    spans = batch["next_obs"][:, 0] - batch["obs"][:, 0]
    # an episode's observations are 100 k + 0 ... 100 k + 7: one that reached into the next would span more
    assert set(spans.tolist()) <= {1.0, 2.0, 3.0}
    assert (batch["rewards"] <= 3.0).all()
    assert len(going_on.buffer) > written
    going_on.close()


@pytest.mark.parametrize("case", ["ppo", "dqn", "ppo in jax"])
def test_the_running_return_of_the_reward_normaliser_starts_anew(case: str) -> None:
    before, going_on = trainer(case, normalize_reward=True), trainer(case, normalize_reward=True)
    before.train_step()
    going_on.load_state_dict(before.state_dict())
    assert open_returns(before).all()
    assert not open_returns(going_on).any()
    going_on.train_step()
    steps = going_on.num_steps
    ends = (np.arange(1, steps + 1) % LENGTH == 0)[:, None].repeat(2, axis=1)
    _, left = running_returns(np.ones((steps, 2)), ends, np.zeros(2), gamma=0.99)
    assert open_returns(going_on) == pytest.approx(left, rel=1e-5)
    for one in (before, going_on):
        one.close()


def open_returns(built: Any) -> Any:
    algorithm = built.algorithm
    normalizer = algorithm.state.reward_normalizer if hasattr(algorithm, "state") else algorithm.reward_normalizer
    return np.asarray(normalizer.open_returns)


def test_a_run_that_had_not_begun_has_nothing_to_drop() -> None:
    before, after = trainer("dqn"), trainer("dqn")
    after.load_state_dict(before.state_dict())
    after.train_step()
    assert {episode.length for episode in after.episodes} == {LENGTH}
    assert not after.buffer.skipped.any()
    for one in (before, after):
        one.close()
