"""The JAX twins keep the rules that `check_algorithm` holds every algorithm to, on ordinary environments."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.testing import ENVIRONMENTS, check_algorithm

NETWORK = {"hidden_dims": [16]}
CONFIG: dict[str, Any] = {"backend": "jax", "lane": "host", "network": {"actor": NETWORK, "critic": NETWORK}}
NORMALIZED = {**CONFIG, "env": {"normalize_obs": True, "normalize_reward": True}}


@pytest.mark.parametrize(("algo", "env_id"), [("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_conforms(algo: str, env_id: str) -> None:
    assert check_algorithm(algo, environments=[env_id], config=NORMALIZED).trained_on == (env_id,)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["reinforce", "ppo", "dqn", "pqn", "sac", "td3"])
def test_conforms_on_every_kind_of_space(algo: str) -> None:
    report = check_algorithm(algo, config=CONFIG)
    assert set(report.trained_on) | set(report.refused) == set(ENVIRONMENTS)
