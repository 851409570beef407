"""Hard exploration: PPO with random network distillation finds what PPO alone does not."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import eval_env_maker
from rl_training.config.loading import load_config
from rl_training.envs import PROBES
from rl_training.training.evaluation import evaluate_policy


def greedy_return(seed: int, flags: dict[str, Any]) -> float:
    """Mean return of the last policy of the preset, as a share of the best one's."""
    cfg = load_config("ppo/deep_sea_rnd", overrides={"seed": seed, **flags})
    with pinned_threads(1):
        trainer = build_trainer(cfg)
        trainer.run(cfg.training.total_timesteps)
        result = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=100, seed=1)
        trainer.close()
    best = PROBES[cfg.env_id].best_return
    assert best is not None
    return float(result.returns.mean()) / best


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rnd_finds_the_treasure_of_the_deep_sea_and_ppo_alone_does_not(seed: int) -> None:
    assert greedy_return(seed, {}) >= 0.9
    assert greedy_return(seed, {"hparams.exploration.type": "none", "training.total_timesteps": 500_000}) <= 0.1
