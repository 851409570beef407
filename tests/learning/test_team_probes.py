"""Teams learn what their mathematics allows: the two-step game of the QMIX paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import eval_env_maker
from rl_training.config.loading import parse_config
from rl_training.models.networks import as_tensors
from rl_training.training.evaluation import evaluate_policy

HPARAMS = {
    "learning_starts": 100,
    "batch_size": 32,
    "updates_per_step": 0.5,
    "epsilon_start": 1.0,
    "epsilon_end": 1.0,
    "learning_rate": 1e-3,
    "target_every_updates": 50,
}


def config(algo: str, seed: int) -> Any:
    return parse_config(
        {
            "algo": algo,
            "env_id": "RLTeam/TwoStepGame-v0",
            "seed": seed,
            "env": {"num_envs": 8, "agents": {"reward": "team_mean"}},
            "hparams": HPARAMS,
            "network": {"critic": {"hidden_dims": [32]}},
            "buffer": {"size": 5_000},
            "training": {"num_eval_episodes": 0, "total_timesteps": 6_000},
        }
    )


def payoffs(trainer: Any, cfg: Any) -> np.ndarray:
    """What the team's value says of the four pairs of actions in state 2B."""
    env = eval_env_maker(cfg, None)(0)
    env.reset(seed=0)
    obs, *_ = env.step(np.array([1.0, 0.0]))
    rows = as_tensors(trainer.algorithm.views["agents"].obs({key: value[None] for key, value in obs.items()}, 1))
    algorithm = trainer.algorithm.members["agents"].algorithm
    with torch.no_grad():
        first, second = algorithm.q(rows).squeeze(2)
        pairs = torch.stack([torch.stack([first[i], second[j]]) for i in range(2) for j in range(2)])
        state = algorithm.state(rows)
        return algorithm.mixer(pairs, None if state is None else state.expand(4, -1)).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("algo", ["vdn", "qmix"])
def test_two_step_game(algo: str, seed: int) -> None:
    """Random actions throughout, greedy evaluation: QMIX 8; VDN 7, since it values 2B at 6.5."""
    cfg = config(algo, seed)
    with pinned_threads(1):
        trainer = build_trainer(cfg)
        while trainer.progress.env_steps < cfg.training.total_timesteps:
            trainer.train_step()
        result = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=4, seed=seed)
        trainer.close()
    values = payoffs(trainer, cfg)
    if algo == "qmix":
        assert result.returns.tolist() == [8.0] * 4
        np.testing.assert_allclose(values, [0, 1, 1, 8], atol=0.2)
    else:
        assert result.returns.tolist() == [7.0] * 4
        np.testing.assert_allclose(values, [-1.5, 2.5, 2.5, 6.5], atol=0.4)
