"""The JAX twins keep the rules that `check_algorithm` holds every algorithm to, on ordinary environments."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.testing import ENVIRONMENTS, check_algorithm

NETWORK = {"hidden_dims": [16]}
CONFIG: dict[str, Any] = {"backend": "jax", "lane": "host", "network": {"actor": NETWORK, "critic": NETWORK}}
NORMALIZED = {**CONFIG, "env": {"normalize_obs": True, "normalize_reward": True}}


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("algo", "env_id"),
    [
        ("dqn", "CartPole-v1"),
        pytest.param("ppo", "CartPole-v1", marks=SLOW),
        pytest.param("sac", "Pendulum-v1", marks=SLOW),
    ],
)
def test_conforms_with_normalisation(algo: str, env_id: str) -> None:
    assert check_algorithm(algo, environments=[env_id], config=NORMALIZED).trained_on == (env_id,)


COUNTED = {"CartPole-v1", "RLProbe/DictObs-v0", "RLProbe/MaskedArms-v0", "FrozenLake-v1"}
"""Discrete actions, which SAC takes in torch alone."""


@SLOW
@pytest.mark.parametrize("algo", ["reinforce", "ppo", "dqn", "pqn", "sac", "td3"])
def test_conforms_on_every_kind_of_space(algo: str) -> None:
    environments = [name for name in ENVIRONMENTS if algo != "sac" or name not in COUNTED]
    report = check_algorithm(algo, environments=environments, config=CONFIG)
    assert set(report.trained_on) | set(report.refused) == set(environments)


@SLOW
@pytest.mark.parametrize("every", [-1, 4])
def test_conforms_with_state_dependent_exploration(every: int) -> None:
    options = {"use_sde": True, "sde_sample_freq": every}
    check_algorithm("ppo", environments=["Pendulum-v1"], hparams=options, config=CONFIG)
