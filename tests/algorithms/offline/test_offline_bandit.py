"""A bandit with uniformly random data: imitation ends at the mean of the data, learning at the best action."""

from __future__ import annotations

import pytest
from offline_cases import BEST, learnt_action

from rl_training.algorithms.offline.bc import BC, BCConfig
from rl_training.algorithms.offline.iql import IQL, IQLConfig
from rl_training.algorithms.offline.td3_bc import TD3BC, TD3BCConfig


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_imitation_ends_at_the_mean_of_the_data(seed: int) -> None:
    assert abs(learnt_action(BC, BCConfig(), seed)) < 0.15


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_iql_finds_the_best_action_among_the_data(seed: int) -> None:
    hparams = IQLConfig(learning_rate=3e-3, beta=10.0, expectile=0.9, tau=0.05)
    assert abs(learnt_action(IQL, hparams, seed) - BEST) < 0.15


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_value_moves_td3_bc_from_the_mean_to_the_better_side(seed: int) -> None:
    options = {"learning_rate": 1e-3, "tau": 0.05}
    imitating, learning = (learnt_action(TD3BC, TD3BCConfig(alpha=alpha, **options), seed) for alpha in (0.02, 2.5))
    assert abs(imitating) < 0.15
    assert learning > 0.3
