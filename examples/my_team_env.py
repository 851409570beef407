"""An environment of your own with several agents, and a team that learns it: `python examples/my_team_env.py`.

Two porters carry a beam along a corridor: they move only if both push the same way, and each sees no more than how far
its own end is from the goal. The class has the methods of PettingZoo's ParallelEnv; no base class is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

import rl_training
from rl_training.testing import check_multi_agent

LEFT, RIGHT = 0, 1


class Beam:
    """Push the beam to the goal within `limit` steps: -0.1 per step, 1 for arriving."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, length: int = 5, limit: int = 20) -> None:
        self.possible_agents = ["front", "back"]
        self.agents: list[str] = []
        self.length, self.limit = length, limit
        self.rng = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.place = int(self.rng.choice([-1, 1]) * self.rng.integers(1, self.length + 1))
        self.steps = 0
        return self.observe(), {agent: {} for agent in self.agents}

    def observe(self) -> dict[str, Any]:
        return {agent: np.array([self.place / (self.length + 1)], np.float32) for agent in self.possible_agents}

    def step(self, actions: dict[str, int]) -> Any:
        front, back = (int(actions[agent]) for agent in self.possible_agents)
        if front == back:
            self.place = int(np.clip(self.place + (1 if front == RIGHT else -1), -self.length, self.length))
        self.steps += 1
        arrived, late = self.place == 0, self.steps >= self.limit
        rewards = dict.fromkeys(self.possible_agents, 1.0 if arrived else -0.1)
        ended = dict.fromkeys(self.possible_agents, arrived), dict.fromkeys(self.possible_agents, late and not arrived)
        self.agents = [] if arrived or late else list(self.possible_agents)
        return self.observe(), rewards, *ended, {agent: {} for agent in self.possible_agents}


def main(total_timesteps: int = 20_000, output_dir: str = "runs") -> float:
    """Check the environment, train a team, and evaluate it; returns the mean return of an agent."""
    check_multi_agent(Beam).raise_for_errors()
    result = rl_training.train(
        {
            "algo": "ippo",
            "env_id": "my_team_env:Beam",  # the module of this file and the class in it
            "output_dir": output_dir,
            "env": {"num_envs": 16, "agents": {"policies": "shared", "ids": "one_hot"}},
            "hparams": {"num_steps": 20, "learning_rate": 3e-3},
            "training": {"total_timesteps": total_timesteps, "num_eval_episodes": 20},
            "logging": {"terminal": False},
        }
    )
    return float(rl_training.evaluate(result.run_dir, episodes=50)["return_mean"])


if __name__ == "__main__":
    print(f"mean return of an agent: {main():.2f} (at best 1 - 0.1 for each step but the last)")
