"""Goal-conditioned probe environments with a sparse reward: too hard for random exploration, easy with hindsight (HER).

Observations are Dicts with the keys observation, achieved_goal and desired_goal. `compute_reward` and
`compute_terminated` work on single goals and on arrays of them, which is what hindsight replay needs.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.types import Array

Step = tuple[dict[str, Array], float, bool, bool, dict[str, Any]]
Reset = tuple[dict[str, Array], dict[str, Any]]


def goal_space(leaf: spaces.Box) -> spaces.Dict:
    """Dict space in which the observation and both goals have the same Box space."""
    return spaces.Dict({"observation": leaf, "achieved_goal": leaf, "desired_goal": leaf})


def goal_obs(state: Array, goal: Array) -> dict[str, Array]:
    """Dict observation in which the achieved goal is the state itself."""
    return {"observation": state.copy(), "achieved_goal": state.copy(), "desired_goal": goal.copy()}


class BitFlip(gym.Env[Any, Any]):
    """Flip one bit per step until the bits equal the goal: reward -1 per step, 0 for the last.

    A random policy reaches the goal with a probability of about num_bits / 2^num_bits per episode.
    """

    def __init__(self, num_bits: int = 15) -> None:
        self.observation_space = goal_space(spaces.Box(0.0, 1.0, (num_bits,), np.float32))
        self.action_space = spaces.Discrete(num_bits)
        self.num_bits = num_bits

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.bits = self._pattern()
        self.goal = self._pattern()
        while np.array_equal(self.bits, self.goal):
            self.goal = self._pattern()
        return goal_obs(self.bits, self.goal), {"is_success": False}

    def _pattern(self) -> Array:
        return self.np_random.integers(2, size=self.num_bits).astype(np.float32)

    def step(self, action: Any) -> Step:
        self.bits[action] = 1.0 - self.bits[action]
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        reached = bool(self.compute_terminated(self.bits, self.goal, {}))
        return goal_obs(self.bits, self.goal), reward, reached, False, {"is_success": reached}

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Any:
        """0 where the goal is reached, -1 elsewhere: shape (...,) for goals (..., num_bits)."""
        return self.compute_terminated(achieved_goal, desired_goal, info).astype(np.float32) - 1.0

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Any:
        """Whether the goal is reached."""
        return (np.asarray(achieved_goal) == np.asarray(desired_goal)).all(axis=-1)


class PointReach(gym.Env[Any, Any]):
    """Move a point in a square to the goal and keep it there: reward 0 within `radius` of it, -1 elsewhere."""

    def __init__(self, radius: float = 0.1, speed: float = 0.2) -> None:
        self.observation_space = goal_space(spaces.Box(-1.0, 1.0, (2,), np.float32))
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.radius = radius
        self.speed = speed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-1.0, 1.0, (2, 2)).astype(np.float32)
        return goal_obs(self.position, self.goal), {"is_success": False}

    def step(self, action: Any) -> Step:
        moved = self.position + self.speed * np.clip(action, -1.0, 1.0)
        self.position = np.clip(moved, -1.0, 1.0).astype(np.float32)
        reward = float(self.compute_reward(self.position, self.goal, {}))
        return goal_obs(self.position, self.goal), reward, False, False, {"is_success": reward == 0.0}

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Any:
        """0 within `radius` of the goal, -1 elsewhere: shape (...,) for goals (..., 2)."""
        distance = np.linalg.norm(np.asarray(achieved_goal) - np.asarray(desired_goal), axis=-1)
        return (distance <= self.radius).astype(np.float32) - 1.0

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Any:
        """Always False: the point has to stay at the goal."""
        return np.zeros(np.shape(achieved_goal)[:-1], np.bool_)
