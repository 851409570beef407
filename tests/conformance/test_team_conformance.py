"""Teams keep the rules of every algorithm: exact resume, owned randomness, evaluation that touches nothing."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.testing import check_algorithm

SMALL: dict[str, Any] = {"hidden_dims": [8]}
NETWORK = {"network": {"actor": SMALL, "critic": SMALL}}
REWARD = {"agents": {"reward": "team_mean"}}
GRU = {**SMALL, "memory": {"type": "gru", "size": 8}}
MEMORY = {"network": {"actor": GRU, "critic": GRU}}


@pytest.mark.parametrize("algo", ["ippo", "mappo", "vdn", "qmix", "dqn"])
@pytest.mark.parametrize("env", [REWARD, {**REWARD, "normalize_obs": True, "normalize_reward": True, "overlap": True}])
def test_teams_conform(algo: str, env: dict[str, Any]) -> None:
    report = check_algorithm(algo, environments=["RLTeam/Leaving-v0"], config={**NETWORK, "env": env})
    assert report.trained_on


@pytest.mark.parametrize("algo", ["mappo", "qmix"])
def test_teams_with_memory_conform(algo: str) -> None:
    sequences = {"sequence_length": 4, **({} if algo == "mappo" else {"burn_in": 2, "stored_state": True})}
    config = {**MEMORY, "env": REWARD}
    assert check_algorithm(algo, environments=["RLTeam/Leaving-v0"], hparams=sequences, config=config).trained_on


def test_several_policies_conform() -> None:
    env = {"agents": {"policies": {"early": ["agent_[01]"], "late": ["agent_2"]}}}
    config = {**NETWORK, "env": env, "policies": {"late": {"hparams": {"learning_rate": 1e-4}}}}
    assert check_algorithm("mappo", environments=["RLTeam/Leaving-v0"], config=config).trained_on
