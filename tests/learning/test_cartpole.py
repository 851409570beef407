"""The PPO preset solves CartPole-v1 within its budget, from every seed."""

from __future__ import annotations

import statistics
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from rl_training import evaluate, train
from rl_training.config_loading import load_config

GREEDY_EPISODES = 100


def final_return(seed: int, output_dir: str) -> float:
    overrides = {"seed": seed, "output_dir": output_dir, "logging.terminal": False, "training.eval_frequency": 0}
    result = train(load_config("ppo/cartpole", overrides))
    assert result.metrics["env_steps"] <= 100_352, "the preset's budget of 100k, the last rollout finished"
    return float(evaluate(result.run_dir, episodes=GREEDY_EPISODES)["return_mean"])


@pytest.mark.learning
@pytest.mark.timeout(600)
def test_every_seed_of_the_preset_solves_cartpole(tmp_path: Path):
    seeds = (0, 1, 2)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        returns = list(pool.map(final_return, seeds, [str(tmp_path)] * len(seeds)))
    assert min(returns) >= 475, returns
    assert statistics.mean(returns) >= 490, returns
