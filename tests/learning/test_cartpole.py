"""The presets of PPO and DQN solve CartPole-v1 within their budgets, from every seed."""

from __future__ import annotations

import statistics
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from rl_training import evaluate, train
from rl_training.config.loading import load_config

GREEDY_EPISODES = 100


BUDGETS = {"ppo/cartpole": 100_352, "dqn/cartpole": 50_000}
"""PPO ends with its last rollout."""


def final_return(preset: str, seed: int, output_dir: str, overlap: bool = False) -> float:
    overrides = {"seed": seed, "output_dir": output_dir, "logging.terminal": False, "training.eval_frequency": 0}
    result = train(load_config(preset, {**overrides, "env.overlap": overlap}))
    assert result.metrics["env_steps"] <= BUDGETS[preset]
    return float(evaluate(result.run_dir, episodes=GREEDY_EPISODES)["return_mean"])


@pytest.mark.learning
def test_a_seed_of_ppo_solves_cartpole(tmp_path: Path):
    assert final_return("ppo/cartpole", 0, str(tmp_path)) >= 475


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.timeout(600)
@pytest.mark.parametrize("preset", ["ppo/cartpole", "dqn/cartpole"])
def test_every_seed_of_the_preset_solves_cartpole(preset: str, tmp_path: Path):
    seeds = (0, 1, 2)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        returns = list(pool.map(final_return, [preset] * 3, seeds, [str(tmp_path)] * 3))
    assert min(returns) >= 475, returns
    assert statistics.mean(returns) >= 490, returns


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.timeout(600)
def test_ppo_solves_it_with_a_policy_that_acts_one_update_behind(tmp_path: Path):
    returns = [final_return("ppo/cartpole", seed, str(tmp_path), overlap=True) for seed in (0, 1)]
    assert min(returns) >= 475, returns
