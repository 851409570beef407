"""Hindsight makes the difference: 15 bits are learnt with it and not without."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import eval_env_maker
from rl_training.config.loading import load_config
from rl_training.training.evaluation import evaluate_policy

OPTIMUM = -6.5
"""On average 7.5 of 15 bits are wrong; every flip but the last costs 1."""
WORST = -15.0
"""The goal is never met within the 15 steps of an episode."""


def score(seed: int, **overrides: Any) -> float:
    budget = {"training.total_timesteps": 14_000}
    config = load_config("dqn/bitflip", {**budget, **overrides, "seed": seed})
    with pinned_threads(1):
        trainer = build_trainer(config)
        trainer.run(config.training.total_timesteps)
        returns = evaluate_policy(
            trainer.algorithm.policy, eval_env_maker(config, None), episodes=100, seed=seed
        ).returns
        trainer.close()
    return float(returns.mean())


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_dqn_solves_fifteen_bits_with_hindsight(seed: int):
    assert score(seed) == pytest.approx(OPTIMUM, abs=0.6)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_plain_dqn_does_not(seed: int):
    assert score(seed, **{"buffer.type": "replay"}) < WORST + 0.5
