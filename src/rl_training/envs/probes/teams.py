"""Probe environments of several agents: tiny team problems with known answers. They need no library beside this one.

Each has the methods of PettingZoo's ParallelEnv and is found by its name in `TEAM_PROBES`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from rl_training.types import Array

Dicts = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]

PAYOFFS: dict[int, Array] = {1: np.full((2, 2), 7.0), 2: np.array([[0.0, 1.0], [1.0, 8.0]])}
"""Rewards of the two-step game in states 2A and 2B, by the actions of both agents."""


class TeamProbe:
    """What the probes share: agents that act at the same time, all with the same spaces."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    render_mode: str | None = None

    def __init__(self, agents: int, observation: spaces.Box, actions: int, state: int) -> None:
        self.possible_agents = [f"agent_{i}" for i in range(agents)]
        self.agents: list[str] = []
        self.observed, self.acted = observation, spaces.Discrete(actions)
        self.state_space = spaces.Box(-np.inf, np.inf, (state,), np.float32)
        self.rng = np.random.default_rng(0)

    def observation_space(self, agent: str) -> spaces.Box:
        return self.observed

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.acted

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.begin()
        return self.observe(self.agents), {agent: {} for agent in self.agents}

    def begin(self) -> None:
        """Set up a new episode."""
        raise NotImplementedError

    def observe(self, agents: list[str]) -> dict[str, Array]:
        """What agents see."""
        raise NotImplementedError

    def ending(self, rewards: dict[str, float], terminated: dict[str, bool]) -> Dicts:
        """The results of a step, after which the agents that have ended are gone."""
        before = self.agents
        self.agents = [agent for agent in before if not terminated[agent]]
        return self.observe(before), rewards, terminated, dict.fromkeys(before, False), {agent: {} for agent in before}


class TwoStepGame(TeamProbe):
    """The two-step game of the QMIX paper (arXiv:1803.11485, section 5): two agents, two actions, two steps.

    In the first state only the first agent's action counts: it leads to state 2A, where every pair of actions gives 7,
    or to 2B, where the payoffs are 0, 1, 1 and 8. The best return is 8. A sum of two agents' values cannot represent
    2B: fitted to uniformly random actions it says -1.5, 2.5, 2.5 and 6.5, so that 2A looks better.
    """

    def __init__(self) -> None:
        super().__init__(2, spaces.Box(0.0, 1.0, (3,), np.float32), 2, 3)

    def begin(self) -> None:
        self.place = 0

    def observe(self, agents: list[str]) -> dict[str, Array]:
        return {agent: self.state() for agent in agents}

    def state(self) -> Array:
        """One-hot: the first state, 2A, 2B."""
        state: Array = np.eye(3, dtype=np.float32)[self.place]
        return state

    def step(self, actions: dict[str, int]) -> Dicts:
        first, second = (int(actions[agent]) for agent in self.possible_agents)
        if self.place == 0:
            self.place = 1 + first
            return self.ending(dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, False))
        reward = float(PAYOFFS[self.place][first, second])
        return self.ending(dict.fromkeys(self.agents, reward), dict.fromkeys(self.agents, True))


class HiddenSigns(TeamProbe):
    """Each of two agents sees a sign of its own, +1 or -1; the reward is their product, plus 1 if both choose action 1.

    An episode is one step. Both agents acting best, its value is 1 + sign * sign: a critic that sees both signs can
    learn it exactly, while one that sees a single sign is off by 1 at best, whatever it learns.
    """

    def __init__(self) -> None:
        super().__init__(2, spaces.Box(-1.0, 1.0, (1,), np.float32), 2, 2)

    def begin(self) -> None:
        self.signs = self.rng.choice([-1.0, 1.0], size=2).astype(np.float32)

    def observe(self, agents: list[str]) -> dict[str, Array]:
        return {agent: self.signs[[self.possible_agents.index(agent)]] for agent in agents}

    def state(self) -> Array:
        return self.signs.copy()

    def step(self, actions: dict[str, int]) -> Dicts:
        together = float(all(int(action) == 1 for action in actions.values()))
        reward = float(self.signs.prod()) + together
        return self.ending(dict.fromkeys(self.agents, reward), dict.fromkeys(self.agents, True))


class Leaving(TeamProbe):
    """Three agents that leave one after the other: agent i takes i + 1 steps and earns i + 1 for each action 1.

    An agent sees how many of its steps are left; action 0 earns nothing. Best returns are 1, 4 and 9.
    """

    def __init__(self) -> None:
        super().__init__(3, spaces.Box(0.0, 3.0, (1,), np.float32), 2, 3)

    def begin(self) -> None:
        self.left = {agent: i + 1 for i, agent in enumerate(self.possible_agents)}

    def observe(self, agents: list[str]) -> dict[str, Array]:
        return {agent: np.array([self.left[agent]], np.float32) for agent in agents}

    def state(self) -> Array:
        return np.array(list(self.left.values()), np.float32)

    def step(self, actions: dict[str, int]) -> Dicts:
        earned = {agent: float(int(actions[agent]) * (1 + self.possible_agents.index(agent))) for agent in self.agents}
        for agent in self.agents:
            self.left[agent] -= 1
        return self.ending(earned, {agent: self.left[agent] == 0 for agent in self.agents})


TEAM_PROBES: dict[str, type[TeamProbe]] = {
    "RLTeam/TwoStepGame-v0": TwoStepGame,
    "RLTeam/HiddenSigns-v0": HiddenSigns,
    "RLTeam/Leaving-v0": Leaving,
}
"""Names of the probes of several agents."""
