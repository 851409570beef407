"""A bandit with uniformly random data: imitation ends at the mean of the data, learning at the best action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.algorithms.offline.bc import BC, BCConfig
from rl_training.algorithms.offline.iql import IQL, IQLConfig
from rl_training.algorithms.offline.td3_bc import TD3BC, TD3BCConfig
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.seeding import Streams
from rl_training.types import BoxSpec

ONE = BoxSpec(np.full(1, -1.0, np.float32), np.full(1, 1.0, np.float32), np.dtype(np.float32))
SMALL = NetworkConfig(actor=BackboneConfig(hidden_dims=(32,)), critic=BackboneConfig(hidden_dims=(32,)))
BEST = 0.6


def learnt_action(build: Any, hparams: Any, seed: int) -> float:
    """The greedy action after 600 updates; rewards are -4 (action - 0.6)^2 and every episode is one step."""
    algorithm = build(BuildContext(ONE, ONE, network=SMALL, streams=Streams(seed)), hparams)
    rng = np.random.default_rng(seed)
    obs, ends = np.ones((128, 1), np.float32), np.ones(128, bool)
    for _ in range(600):
        actions = rng.uniform(-1.0, 1.0, (128, 1)).astype(np.float32)
        rewards = -4.0 * np.square(actions[:, 0] - BEST)
        batch = {"obs": obs, "next_obs": obs, "actions": actions, "rewards": rewards, "truncated": ~ends}
        algorithm.update({**batch, "terminated": ends})
    result = algorithm.policy.act(obs[:1], {}, np.ones(1, bool), rng, deterministic=True)
    return float(result.env_actions[0, 0])


@pytest.mark.parametrize("seed", [0, 1])
def test_imitation_ends_at_the_mean_of_the_data(seed: int) -> None:
    assert abs(learnt_action(BC, BCConfig(), seed)) < 0.15


@pytest.mark.parametrize("seed", [0, 1])
def test_iql_finds_the_best_action_among_the_data(seed: int) -> None:
    hparams = IQLConfig(learning_rate=3e-3, beta=10.0, expectile=0.9, tau=0.05)
    assert abs(learnt_action(IQL, hparams, seed) - BEST) < 0.15


@pytest.mark.parametrize("seed", [0, 1])
def test_the_value_moves_td3_bc_from_the_mean_to_the_better_side(seed: int) -> None:
    options = {"learning_rate": 1e-3, "tau": 0.05}
    imitating, learning = (learnt_action(TD3BC, TD3BCConfig(alpha=alpha, **options), seed) for alpha in (0.02, 2.5))
    assert abs(imitating) < 0.15
    assert learning > 0.3
