"""`check_multi_agent` passes five families, which also pass PettingZoo's own test, and finds what is broken."""

from __future__ import annotations

import re
import warnings
from typing import Any

import gymnasium as gym
import pytest
import team_cases

from rl_training.config.multi_agent.agents import AgentsConfig
from rl_training.config.schema import EnvConfig
from rl_training.envs.multi_agent.mpe import direct
from rl_training.envs.multi_agent.repairs import repaired
from rl_training.envs.multi_agent.simultaneous import GymTeam
from rl_training.envs.multi_agent.sources import TeamSource
from rl_training.testing import check_multi_agent

FAMILIES: dict[str, dict[str, Any]] = {
    "mpe2/simple_spread_v3": {},
    "pettingzoo/butterfly/knights_archers_zombies_v11": {"max_cycles": 40, "spawn_delay": 3},
    "pettingzoo/sisl/pursuit_v5": {"max_cycles": 15, "n_pursuers": 3, "n_evaders": 4},
    "pettingzoo/classic/rps_v2": {"max_cycles": 5},
}
FORAGING = "Foraging-8x8-2p-3f-v3"
"""The fifth family: a joint Gymnasium environment."""


@pytest.mark.parametrize("name", FAMILIES)
def test_families_of_pettingzoo(name: str) -> None:
    report = check_multi_agent(name, EnvConfig(kwargs=FAMILIES[name]), steps=60)
    assert str(report) == "no problems found"


def test_level_based_foraging() -> None:
    assert str(check_multi_agent(FORAGING, steps=60)) == "no problems found"


def test_probes_and_a_single_agent_in_disguise() -> None:
    for name in ("RLTeam/TwoStepGame-v0", "RLTeam/HiddenSigns-v0", "RLTeam/Leaving-v0", "team_cases:Alone"):
        assert check_multi_agent(name, steps=60).ok, name
    masked = EnvConfig(agents=AgentsConfig(masks="info"), kwargs={"place": "info"})
    assert check_multi_agent(team_cases.Masked, masked, steps=20).ok


class Foraging(GymTeam):
    """With what PettingZoo's test asks for beside the methods."""

    @property
    def unwrapped(self) -> Foraging:
        return self


@pytest.mark.parametrize("name", [*FAMILIES, FORAGING])
def test_pettingzoo_agrees(name: str) -> None:
    """What we step directly, mend or bring to its form is a ParallelEnv to PettingZoo's own test."""
    env: Any = (
        Foraging(gym.make(FORAGING)) if name == FORAGING else repaired(direct(TeamSource(name)(**FAMILIES[name])))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of styles that it does not require, and of its own new registry
        from pettingzoo.test import parallel_api_test

        parallel_api_test(env, num_cycles=50)


BROKEN = {
    "ComesBack": "agent_0 came back within an episode",
    "Lingers": "is still in `agents` after its end",
    "Forgets": "step: observations lack agent_0",
    "WrongSpace": "an observation of agent_0 is not in its space .* dtype float64",
    "Unseeded": "two copies differ under the same seed and actions",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_environments_are_found(name: str) -> None:
    report = check_multi_agent(f"team_cases:{name}", steps=20)
    assert not report.ok
    assert any(re.search(BROKEN[name], text) for text in report.errors), report


def test_a_single_agent_is_sent_to_check_env() -> None:
    assert "check it with check_env" in str(check_multi_agent("CartPole-v1"))
