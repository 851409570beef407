"""Episodes for replay tests: random ones of several environments, as a collector hands them over in either mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.types import Array, VectorStep


@dataclass
class Transition:
    """One valid row: `obs` and `next_obs` are the serial numbers of observations, unique over everything."""

    env: int
    obs: int
    next_obs: int
    reward: float
    terminated: bool
    truncated: bool


class Episodes:
    """Steps of `num_envs` environments whose observations are counted; episodes end at random."""

    def __init__(
        self, num_envs: int, seed: int, *, next_step: bool = False, lost: float = 0.0, ends: float = 0.24
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.num_envs = num_envs
        self.next_step = next_step
        self.lost = lost
        self.ends = ends
        self.serial = 0
        self.obs = self._fresh(num_envs)
        self.is_first = np.ones(num_envs, bool)
        self.resetting = np.zeros(num_envs, bool)
        self.rows: list[Transition | None] = []
        """Every row in the order of time, None for those that are no transitions."""

    def _fresh(self, count: int) -> Array:
        self.serial += count
        return np.arange(self.serial - count, self.serial)

    def step(self) -> VectorStep:
        """The next step of all environments, as a collector would show it."""
        rng, num_envs = self.rng, self.num_envs
        obs, next_obs = self.obs, self._fresh(num_envs)
        lost = rng.random(num_envs) < self.lost
        valid = ~(self.resetting | lost)
        terminated = (rng.random(num_envs) < self.ends / 2) & valid
        truncated = ((rng.random(num_envs) < self.ends / 2) & valid & ~terminated) | lost
        rewards = rng.normal(size=num_envs).astype(np.float32)
        for i in range(num_envs):
            row = Transition(
                i, int(obs[i]), int(next_obs[i]), float(rewards[i]), bool(terminated[i]), bool(truncated[i])
            )
            self.rows.append(row if valid[i] else None)
        ended = terminated | truncated
        is_first = self.is_first
        self.obs = next_obs.copy()
        if self.next_step:
            self.is_first, self.resetting = self.resetting, ended
        else:
            self.is_first = ended
            self.obs[ended] = self._fresh(int(ended.sum()))
        as_obs: Callable[[Array], Array] = lambda numbers: numbers[:, None].astype(np.float32)  # noqa: E731
        return VectorStep(as_obs(obs), obs.copy(), rewards, terminated, truncated, is_first, valid, as_obs(next_obs))

    def steps(self, count: int) -> Iterator[VectorStep]:
        for _ in range(count):
            yield self.step()

    def windows(self, n_step: int, gamma: float, oldest: int) -> dict[int, tuple[Any, ...]]:
        """What can be drawn of rows `oldest` on, by the slow way: obs -> (reward, next_obs, discount, flags)."""
        found = {}
        for number in range(oldest, len(self.rows)):
            first = self.rows[number]
            if first is None:
                continue
            total, discount, last, steps, at = first.reward, gamma, first, 1, number
            while steps < n_step and not (last.terminated or last.truncated):
                at += self.num_envs
                if at >= len(self.rows):
                    break
                following = self.rows[at]
                if following is None:
                    break
                total, last = total + discount * following.reward, following
                discount, steps = discount * gamma, steps + 1
            unfinished = at >= len(self.rows)
            if not unfinished:
                found[first.obs] = (total, last.next_obs, discount, last.terminated, last.truncated)
        return found
