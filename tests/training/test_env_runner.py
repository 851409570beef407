"""EnvRunner, evaluation and the plan of a run."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.algorithms.constant import ConstantAgent, ConstantConfig
from rl_training.algorithms.random import RandomAgent, RandomConfig
from rl_training.assembly.cost import plan
from rl_training.build_context import BuildContext
from rl_training.config.schema import CheckpointConfig, EnvConfig, TrainConfig, TrainingConfig
from rl_training.envs import make_env
from rl_training.envs.probes.control import Counting
from rl_training.seeding import episode_seed
from rl_training.training.env_runner import EnvRunner
from rl_training.training.evaluation import EvalResult, evaluate_policy
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

BOX = BoxSpec(np.zeros(1, np.float32), np.full(1, 3, np.float32), np.dtype(np.float32))


def agent(actions: Any = None) -> RandomAgent:
    return RandomAgent(BuildContext(BOX, actions or DiscreteSpec(2)), RandomConfig())


def test_env_runner_collects_rollouts_and_starts_over():
    runner = EnvRunner([Counting, Counting], agent(), max_steps=2)
    batch, returns = runner.collect_rollouts(5)
    assert batch["obs"].shape == (5, 2, 1)
    assert batch["obs"][:, 0, 0].tolist() == [0, 1, 0, 1, 0]
    assert batch["truncated"][:, 1].tolist() == [False, True, False, True, False]
    assert returns == [3.0] * 4, "two steps pay 1 + 2"
    runner.reset()
    again, _ = runner.collect_rollouts(5)
    np.testing.assert_array_equal(batch["actions"], again["actions"])


class SeedReporter(gym.Env[Any, Any]):
    """One-step episodes that pay the seed they were reset with."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seed = seed
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), float(self.seed or 0), True, False, {"is_success": action == 1}


@pytest.mark.parametrize("num_envs", [1, 3, 7])
def test_episode_k_starts_from_its_own_seed_whatever_the_number_of_environments(num_envs: int):
    result = evaluate_policy(
        agent(), lambda i: make_env(SeedReporter, index=i, training=False), episodes=7, seed=11, num_envs=num_envs
    )
    assert result.returns.tolist() == [episode_seed(11, k) for k in range(7)]
    assert result.lengths.tolist() == [1] * 7
    assert 0.0 <= result.metrics()["success_rate"] <= 1.0


def test_metrics_of_an_evaluation():
    result = EvalResult(np.array([1.0, 2.0, 3.0, 4.0]), np.array([5, 5, 5, 9]), np.array([np.nan, 1.0, 0.0, np.nan]))
    metrics = result.metrics()
    assert metrics["return_mean"] == 2.5
    assert metrics["return_iqm"] == 2.5
    assert metrics["return_std"] == pytest.approx(1.118034, abs=1e-6)
    assert metrics["length_mean"] == 6.0
    assert metrics["success_rate"] == 0.5


def test_the_plan_counts_what_will_happen():
    cfg = TrainConfig(
        env=EnvConfig(num_envs=4),
        training=TrainingConfig(total_timesteps=10_000, eval_frequency=2_000, checkpoint_frequency=5_000),
        checkpoint=CheckpointConfig(keep_last=2),
    )
    cost = plan(cfg)
    assert cost["env_steps"] == 10_240
    assert cost["updates"] == 20
    assert cost["evaluations"] == 6, "at 0, 2k, 4k, 6k, 8k and 10k, which is the end"
    assert cost["checkpoints"] == 3, "at 0, 5k and 10k"
    actor = 4 * 64 + 64 + 64 * 64 + 64
    assert cost["parameters"] == 2 * actor + 64 * 2 + 2 + 64 + 1
    assert cost["disk_bytes"] > 3 * 4 * cost["parameters"], "parameters and two moments"


@pytest.mark.parametrize(
    ("space", "given", "expected"),
    [
        (DiscreteSpec(3), 2, 2),
        (DiscreteSpec(3), None, 0),
        (MultiDiscreteSpec((2, 3)), [1, 2], [1, 2]),
        (MultiBinarySpec(2), 1, [1, 1]),
        (BOX, None, [1.5]),
        (BOX, 0.25, [0.25]),
    ],
)
def test_constant_actions(space: Any, given: Any, expected: Any):
    policy = ConstantAgent(BuildContext(BOX, space), ConstantConfig(action=given))
    actions = policy.act(np.zeros((2, 1)), {}, np.ones(2, bool), np.random.default_rng(0)).actions
    assert actions.tolist() == [expected, expected]
    assert actions.dtype == space.dtype


@pytest.mark.parametrize(
    ("space", "given"), [(DiscreteSpec(3), 3), (DiscreteSpec(3), 0.5), (BOX, [1.0, 2.0]), (BOX, 4)]
)
def test_constant_actions_outside_the_space_are_refused(space: Any, given: Any):
    with pytest.raises(ConfigError, match=r"hparams\.action"):
        ConstantAgent(BuildContext(BOX, space), ConstantConfig(action=given))


def test_random_actions_cover_the_space():
    rng = np.random.default_rng(0)
    first = np.ones(4000, bool)
    discrete = agent().act(np.zeros((4000, 1)), {}, first, rng).actions
    assert np.bincount(discrete) / 4000 == pytest.approx([0.5, 0.5], abs=0.03)
    unbounded = BoxSpec(np.float32([-1, -np.inf, 2.0]), np.float32([1, np.inf, np.inf]), np.dtype(np.float32))
    drawn = agent(unbounded).act(np.zeros((4000, 1)), {}, first, rng).actions
    assert np.abs(drawn[:, 0]).max() <= 1.0
    assert drawn[:, 1].std() == pytest.approx(1.0, abs=0.05)
    assert drawn[:, 2].min() >= 2.0
