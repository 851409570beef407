"""Batches, contexts and a bandit that the tests of offline algorithms share."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.seeding import Streams
from rl_training.types import BoxSpec

OBS = BoxSpec(np.full(3, -np.inf, np.float32), np.full(3, np.inf, np.float32), np.dtype(np.float32))
ACTION = BoxSpec(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32), np.dtype(np.float32))
SMALL = NetworkConfig(actor=BackboneConfig(hidden_dims=(16,)), critic=BackboneConfig(hidden_dims=(16,)))


def context(**changes: Any) -> BuildContext:
    return BuildContext(OBS, ACTION, network=SMALL, **changes)


def batch(rows: int = 32) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "next_obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.2,
        "truncated": np.zeros(rows, bool),
    }


ONE = BoxSpec(np.full(1, -1.0, np.float32), np.full(1, 1.0, np.float32), np.dtype(np.float32))
BANDIT = NetworkConfig(actor=BackboneConfig(hidden_dims=(32,)), critic=BackboneConfig(hidden_dims=(32,)))
BEST = 0.6


def learnt_action(build: Any, hparams: Any, seed: int) -> float:
    """The greedy action after 600 updates; rewards are -4 (action - 0.6)^2 and every episode is one step."""
    algorithm = build(BuildContext(ONE, ONE, network=BANDIT, streams=Streams(seed)), hparams)
    rng = np.random.default_rng(seed)
    obs, ends = np.ones((128, 1), np.float32), np.ones(128, bool)
    for _ in range(600):
        actions = rng.uniform(-1.0, 1.0, (128, 1)).astype(np.float32)
        rewards = -4.0 * np.square(actions[:, 0] - BEST)
        batch = {"obs": obs, "next_obs": obs, "actions": actions, "rewards": rewards, "truncated": ~ends}
        algorithm.update({**batch, "terminated": ends})
    result = algorithm.policy.act(obs[:1], {}, np.ones(1, bool), rng, deterministic=True)
    return float(result.env_actions[0, 0])
