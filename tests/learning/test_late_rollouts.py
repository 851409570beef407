"""IMPALA solves CartPole-v1 from every seed, also with an acting policy that is 16 updates old; without V-trace not."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from rl_training import evaluate, train
from rl_training.config.loading import load_config

SEEDS = (0, 1, 2)
LAG = 16


def final_return(seed: int, output_dir: str, hparams: dict[str, Any]) -> float:
    """Mean return of 100 greedy episodes of the final policy."""
    given = {"seed": seed, "output_dir": output_dir, "logging.terminal": False, "training.eval_frequency": 0}
    result = train(load_config("impala/cartpole", {**given, **hparams}))
    return float(evaluate(result.run_dir, episodes=100)["return_mean"])


def returns(output_dir: Path, **hparams: Any) -> list[float]:
    named = {f"hparams.{name}": value for name, value in hparams.items()}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return list(pool.map(final_return, SEEDS, [str(output_dir)] * 3, [named] * 3))


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lag", [0, LAG])
def test_every_seed_solves_it(lag: int, tmp_path: Path) -> None:
    found = returns(tmp_path, policy_lag=lag)
    assert min(found) >= 475, found


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.timeout(900)
def test_the_same_learner_with_all_ratios_one_does_not(tmp_path: Path) -> None:
    """So the lag is one that needs the correction."""
    found = returns(tmp_path, policy_lag=LAG, correction="none")
    assert sum(found) / len(found) < 300, found
