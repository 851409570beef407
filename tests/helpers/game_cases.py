"""Games for tests: one of three players with known returns, and a two-player one whose mask is in infos."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


class LastOneOut:
    """Three players say 0 or 1 in turns. Who says 1 is out with reward -1; whoever is left, or everybody after three
    rounds, gets 1. Each turn costs everybody 0.1. The observation is the number of turns so far."""

    metadata = {"name": "last_one_out", "is_parallelizable": False}  # noqa: RUF012

    def __init__(self) -> None:
        self.possible_agents = ["a", "b", "c"]
        self.agents: list[str] = []
        self.agent_selection = "a"

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0.0, 100.0, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = list(self.possible_agents)
        self.agent_selection = "a"
        self.turns = 0
        self.owed = dict.fromkeys(self.agents, 0.0)
        self.ended = dict.fromkeys(self.agents, False)
        self.waiting: list[str] = []

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        agent = self.agent_selection
        mask = np.zeros(2, np.int8) if self.ended[agent] else np.ones(2, np.int8)
        obs = np.array([self.turns], np.float32)
        return obs, self.owed[agent], self.ended[agent], False, {"action_mask": mask}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.ended[agent]:
            assert action is None
            self.agents.remove(agent)
            self._next(agent)
            return
        self.owed[agent] = 0.0
        self.turns += 1
        for other in self.agents:
            self.owed[other] -= 0.1
        if int(action) == 1:
            self.ended[agent] = True
            self.owed[agent] -= 1.0
        left = [other for other in self.agents if not self.ended[other]]
        if len(left) == 1 or self.turns >= 9:
            for other in left:
                self.owed[other] += 1.0
                self.ended[other] = True
        self._next(agent)

    def _next(self, agent: str) -> None:
        """Those that have ended come first, then the next in order."""
        order = self.possible_agents
        place = order.index(agent)
        following = [order[(place + i) % 3] for i in range(1, 4)]
        dead = [other for other in self.agents if self.ended[other]]
        alive = [other for other in following if other in self.agents and not self.ended[other]]
        if dead or alive:
            self.agent_selection = (dead or alive)[0]


class Stays(LastOneOut):
    """The same whose agents stay when they have ended."""

    def step(self, action: Any) -> None:
        if action is not None:
            super().step(action)


class AtOnce(LastOneOut):
    """The same with agents that could act at the same time."""

    metadata = {"name": "at_once", "is_parallelizable": True}  # noqa: RUF012


def stay(observation: Any, mask: Any, rng: Any) -> int:
    return 0


def leave(observation: Any, mask: Any, rng: Any) -> int:
    return 1


def cheat(observation: Any, mask: Any, rng: Any) -> int:
    return 7
