"""What a learner sees of rewards and ends is one thing, what is counted and evaluated another."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.algorithms.random import RandomAgent, RandomConfig
from rl_training.build_context import BuildContext
from rl_training.config.schema import TrainConfig
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.envs import make_vector_env
from rl_training.envs.preprocessing.step_infos import ENV_FRAMES, LEARNING_REWARD, LIFE_LOST
from rl_training.training.collector import Collector
from rl_training.training.evaluation import evaluate_policy
from rl_training.training.host import rollout_metrics
from rl_training.types import BoxSpec, DiscreteSpec

BOX = BoxSpec(np.zeros(1, np.float32), np.full(1, 9, np.float32), np.dtype(np.float32))


class Lives(gym.Env[Any, Any]):
    """A game of five steps, 10 points each, 4 frames each; a life is lost at the second, the last one at the fifth."""

    observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        info: dict[str, Any] = {LEARNING_REWARD: 1.0, ENV_FRAMES: 4}
        if self.time == 2:
            info[LIFE_LOST] = True
        return np.full(1, self.time, np.float32), 10.0, self.time == 5, False, info


def agent() -> RandomAgent:
    return RandomAgent(BuildContext(BOX, DiscreteSpec(2)), RandomConfig())


def collected(env: Any, steps: int) -> tuple[dict[str, Any], Any, Collector]:
    collector = Collector(env, agent(), np.random.default_rng(0))
    buffer = RolloutBuffer(num_steps=steps, num_envs=1, obs_shape=(1,), action_shape=(), action_dtype=np.int64)
    stats = collector.collect(steps, buffer)
    return buffer.as_batch(), stats, collector


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED], ids=lambda mode: mode.name)
def test_the_learner_sees_clipped_rewards_and_lost_lives(mode: AutoresetMode) -> None:
    batch, stats, _ = collected(SyncVectorEnv([Lives], autoreset_mode=mode), 10)
    assert batch["rewards"][:, 0].tolist() == [1.0] * 10
    assert np.flatnonzero(batch["terminated"]).tolist() == [1, 4, 6, 9]
    assert not batch["truncated"].any()
    assert [(e.episode_return, e.length, e.terminated) for e in stats.episodes] == [(50.0, 5, True)] * 2


def test_a_lost_life_is_no_reset() -> None:
    env: Any = make_vector_env(TrainConfig(), 1, env_fn=Lives)
    batch, _, _ = collected(env, 10)
    assert np.flatnonzero(batch["is_first"]).tolist() == [0, 5]
    assert batch["obs"][:, 0, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    # what followed the lost life is what was there, not the start of a game
    assert dict(zip(batch["final_index"].tolist(), batch["final_obs"][:, 0].tolist(), strict=True)) == {
        1: 2.0, 4: 5.0, 6: 2.0, 9: 5.0,
    }  # fmt: skip


def test_reset_steps_of_next_step_environments_take_no_part() -> None:
    batch, stats, _ = collected(SyncVectorEnv([Lives], autoreset_mode=AutoresetMode.NEXT_STEP), 12)
    valid = batch["valid"][:, 0]
    assert np.flatnonzero(~valid).tolist() == [5, 11]
    assert np.flatnonzero(batch["terminated"][valid]).tolist() == [1, 4, 6, 9]
    assert batch["rewards"][valid][:, 0].tolist() == [1.0] * 10
    assert stats.returns == [50.0, 50.0]


def test_frames_are_counted_over_the_whole_run() -> None:
    _, stats, collector = collected(make_vector_env(TrainConfig(), 1, env_fn=Lives), 10)
    assert rollout_metrics(stats)["rollout/env_frames"] == 40
    other = Collector(make_vector_env(TrainConfig(), 1, env_fn=Lives), agent(), np.random.default_rng(0))
    other.load_state_dict(collector.state_dict())
    assert other.env_frames == 40


def test_an_environment_that_counts_no_frames_leaves_no_trace() -> None:
    _, stats, collector = collected(silent(), 3)
    assert "rollout/env_frames" not in rollout_metrics(stats)
    assert "env_frames" not in collector.state_dict()


def silent() -> Any:
    class Silent(Lives):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {})

    return make_vector_env(TrainConfig(), 1, env_fn=Silent)


def test_evaluation_is_the_score_of_the_game() -> None:
    result = evaluate_policy(agent().policy, lambda i: Lives(), episodes=3, seed=0)
    assert result.returns.tolist() == [50.0] * 3
    assert result.lengths.tolist() == [5] * 3
