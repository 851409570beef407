"""Environments of several agents that tests share: turn-taking ones, broken ones, and a single agent in disguise."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.probes.teams import Leaving


class Alone:
    """CartPole as an environment of several agents, of which there is one."""

    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.env = gym.make("CartPole-v1", disable_env_checker=True)
        self.possible_agents = ["pole"]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:
        return self.env.action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        obs, info = self.env.reset(seed=seed)
        self.agents = ["pole"]
        return {"pole": obs}, {"pole": info}

    def step(self, actions: dict[str, Any]) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(actions["pole"])
        self.agents = [] if terminated or truncated else ["pole"]
        return {"pole": obs}, {"pole": reward}, {"pole": terminated}, {"pole": truncated}, {"pole": info}


class Masked(Leaving):
    """`Leaving` with a mask that allows only action 1, in the observation or in the info."""

    def __init__(self, place: str = "observation") -> None:
        super().__init__()
        self.place = place
        if place == "observation":
            inner = {"steps": self.observed, "action_mask": spaces.MultiBinary(2)}
            self.observed = spaces.Dict(inner)  # type: ignore[assignment]

    def observe(self, agents: list[str]) -> Any:
        seen = super().observe(agents)
        if self.place != "observation":
            return seen
        return {agent: {"steps": obs, "action_mask": np.array([0, 1], np.int8)} for agent, obs in seen.items()}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, infos = super().reset(seed, options)
        return obs, self._told(infos)

    def step(self, actions: dict[str, int]) -> Any:
        assert all(int(action) == 1 for action in actions.values()), "the mask was not kept"
        *results, infos = super().step(actions)
        return *results, self._told(infos)

    def _told(self, infos: Any) -> Any:
        return {agent: {"action_mask": np.array([0, 1], np.int8)} if self.place == "info" else {} for agent in infos}


class LeavesEarly(Leaving):
    """Agent 0 leaves after one step, the others after fifty; without a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.observed = spaces.Box(0.0, 50.0, (1,), np.float32)
        self.state_space = None  # type: ignore[assignment]

    def begin(self) -> None:
        self.left = {"agent_0": 1, "agent_1": 50, "agent_2": 50}


class ComesBack(Leaving):
    """An agent comes back after its end."""

    def step(self, actions: dict[str, int]) -> Any:
        results = super().step({**dict.fromkeys(self.possible_agents, 0), **actions})
        if len(self.agents) == 1:
            self.agents = ["agent_0", *self.agents]
            self.left["agent_0"] = 1
            results[0].update(self.observe(["agent_0"]))
        return results


class Lingers(Leaving):
    """An agent stays in the list after its end."""

    def step(self, actions: dict[str, int]) -> Any:
        before = list(self.agents)
        results = super().step(actions)
        self.agents = before if self.agents else []
        return results


class Odd(Leaving):
    """Something is wrong with it, by name."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        if fault == "numbers":
            self.possible_agents = [0, 1, 2]  # type: ignore[list-item]

    def begin(self) -> None:
        super().begin()
        if self.fault == "nobody":
            self.agents = []
        if self.fault == "stranger":
            self.agents = [*self.agents, "guest"]

    def observe(self, agents: list[str]) -> Any:
        if self.fault == "larger":
            return {agent: np.zeros(2, np.float32) for agent in agents}
        if self.fault == "smaller":
            return {agent: np.float32(0) for agent in agents}
        return {} if self.fault == "nothing" else super().observe([agent for agent in agents if agent != "guest"])

    def state(self) -> Any:
        return np.zeros(2 if self.fault == "state" else 3, np.float32)


class Forgets(Leaving):
    """Observations of an agent are missing in the step that ends it."""

    def step(self, actions: dict[str, int]) -> Any:
        obs, *rest = super().step(actions)
        return {agent: seen for agent, seen in obs.items() if agent in self.agents}, *rest


class WrongSpace(Leaving):
    """Observations have another dtype than their space."""

    def observe(self, agents: list[str]) -> Any:
        return {agent: obs.astype(np.float64) for agent, obs in super().observe(agents).items()}


class Unseeded(Leaving):
    """Rewards depend on more than the seed."""

    count = 0

    def step(self, actions: dict[str, int]) -> Any:
        obs, rewards, *rest = super().step(actions)
        Unseeded.count += 1
        return obs, {agent: reward + Unseeded.count for agent, reward in rewards.items()}, *rest
