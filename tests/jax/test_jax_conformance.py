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


TEAM = {**CONFIG, "env": {"agents": {"reward": "team_mean"}}}


@pytest.mark.parametrize("algo", ["pqn_vdn", pytest.param("ippo", marks=SLOW), pytest.param("mappo", marks=SLOW)])
def test_teams_conform(algo: str) -> None:
    """Agents that act and end together, on the host."""
    assert check_algorithm(algo, environments=["RLTeam/TwoStepGame-v0"], config=TEAM).trained_on


DREAMER = {
    "size": "custom",
    "custom": {"deter": 8, "hidden": 8, "stoch": 2, "classes": 3, "units": 8, "layers": 1, "depth": 1, "bins": 5},
    "batch_size": 3,
    "sequence_length": 4,
    "train_ratio": 2,
    "learning_starts": 16,
    "imagine_horizon": 2,
}


@SLOW
@pytest.mark.timeout(1200)
def test_dreamer_conforms_on_every_kind_of_space() -> None:
    config = {"backend": "jax", "lane": "host"}
    report = check_algorithm("dreamer", hparams=DREAMER, config=config)
    assert set(report.trained_on) | set(report.refused) == set(ENVIRONMENTS)
    assert set(report.refused) == {"RLProbe/MultiDiscrete-v0", "RLProbe/MultiBinary-v0", "RLProbe/MaskedArms-v0"}
