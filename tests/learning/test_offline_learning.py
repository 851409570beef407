"""What offline algorithms learn from mixed data: more than the policy that collected it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import train
from rl_training.data.datasets.dataset import Dataset, Steps, joined
from rl_training.data.datasets.info import DatasetInfo
from rl_training.data.datasets.native import write_native
from rl_training.envs import space_spec

LAYERS = {"hidden_dims": [64, 64], "activation": "relu"}


def mixed_cartpole() -> Dataset:
    """4,500 rows of a player that mostly does the opposite of a good rule, and 1,500 of one that mostly follows it."""
    env, rng = gym.make("CartPole-v1"), np.random.default_rng(0)
    spaces = space_spec(env.observation_space), space_spec(env.action_space)
    episodes: list[Steps] = []
    for right, steps in ((0.3, 4500), (0.8, 1500)):
        played = 0
        while played < steps:
            episodes.append(episode(env, rng, right, seed=len(episodes)))
            played += len(episodes[-1].rewards)
    env.close()
    return joined(DatasetInfo("CartPole-v1", spaces), episodes)


def episode(env: Any, rng: np.random.Generator, right: float, seed: int) -> Steps:
    """One episode of a player that follows the rule with probability `right`."""
    obs, _ = env.reset(seed=seed)
    seen, actions, ended = [obs], [], False
    while not ended and len(actions) < 500:
        good = int(obs[2] + 0.3 * obs[3] > 0)
        actions.append(good if rng.random() < right else 1 - good)
        obs, _, ended, _, _ = env.step(actions[-1])
        seen.append(obs)
    last = np.arange(len(actions)) == len(actions) - 1
    return Steps(np.array(seen), np.array(actions), np.ones(len(actions)), last & ended, last & (not ended))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_discrete_cql_is_above_imitation_on_mixed_data(seed: int, tmp_path: Path) -> None:
    """Most rows do the wrong thing, which imitation repeats; what they led to is known, and CQL learns from that."""
    folder = write_native(mixed_cartpole(), tmp_path / "mixed")
    common: dict[str, Any] = {"dataset": {"path": str(folder)}, "output_dir": str(tmp_path), "seed": seed}
    common |= {"network": {"actor": LAYERS, "critic": LAYERS}, "logging": {"terminal": False}}
    common["training"] = {"total_updates": 3000, "num_eval_episodes": 20, "eval_frequency": 0}
    cql = train({"algo": "cql", "hparams": {"learning_rate": 1e-3, "weight": 0.5}, **common})
    bc = train({"algo": "bc", **common})
    learnt, imitated = (run.metrics["eval/return_mean"] for run in (cql, bc))
    assert learnt > 150.0
    assert learnt > imitated + 50.0
