"""Recording episodes for a dataset: one environment, one episode after the other, each with its own seed and noise.

A policy is asked for one row at a time, since a matrix product may round a row differently in a larger batch. So the
same command gives the same bits, whatever the run was trained with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.algorithms.random import random_actions
from rl_training.data.datasets.dataset import Steps
from rl_training.numerics.encoding import within
from rl_training.seeding import episode_streams
from rl_training.training.evaluation import EnvMaker, copied, stack_obs
from rl_training.types import ACTION_MASK, REWARD, Array, BoxSpec, ConfigError, LeafSpec, Obs, Policy


@dataclass(frozen=True)
class Behaviour:
    """How actions are chosen: greedily, unless something else is said."""

    stochastic: bool = False
    """Sample from the policy."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise on Box actions, in half widths of their bounds."""
    epsilon: float = 0.0
    """Probability of a uniformly random action."""

    def text(self) -> str:
        """How dataset.json describes it."""
        words = ["sampled" if self.stochastic else "greedy"]
        words += [f"noise {self.noise:g}"] if self.noise else []
        words += [f"epsilon {self.epsilon:g}"] if self.epsilon else []
        return ", ".join(words)

    def check(self, space: LeafSpec) -> None:
        """ConfigError where the actions have no place for this noise."""
        if self.noise and not (isinstance(space, BoxSpec) and space.is_bounded):
            raise ConfigError("--noise is for Box actions within finite bounds; take --epsilon or --stochastic")

    def applied(self, action: Array, space: LeafSpec, obs: Obs, rng: np.random.Generator) -> Array:
        """The action that is taken, given that of the policy; both (1, ...)."""
        if self.noise and isinstance(space, BoxSpec):
            drawn = self.noise * 0.5 * (space.high - space.low) * rng.standard_normal(action.shape)
            action = within(space, action + drawn)
        if self.epsilon and rng.random() < self.epsilon:
            mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
            action = random_actions(space, 1, rng, mask)
        return action


@dataclass(frozen=True)
class Amount:
    """How much is recorded: a number of episodes, or of steps. Exactly one is given."""

    episodes: int | None = None
    steps: int | None = None

    def left(self, episodes: int, steps: int) -> int | None:
        """Steps that the next episode may have at most; 0 where enough is recorded, None without a limit."""
        if self.episodes is not None:
            return None if episodes < self.episodes else 0
        assert self.steps is not None
        return max(self.steps - steps, 0)


def record_episodes(
    policy: Policy, make_env: EnvMaker, space: LeafSpec, amount: Amount, seed: int, how: Behaviour
) -> Iterator[Steps]:
    """Play episodes until there are enough. One that the number of steps cuts off counts as truncated, and not as
    whole: what it would have returned is unknown."""
    how.check(space)
    env, steps, number = make_env(0), 0, 0
    try:
        while (limit := amount.left(number, steps)) != 0:
            episode = play(policy, env, space, (seed, number), how, limit)
            steps, number = steps + len(episode.rewards), number + 1
            yield episode
    finally:
        env.close()


def play(
    policy: Policy, env: Any, space: LeafSpec, streams: tuple[int, int], how: Behaviour, limit: int | None
) -> Steps:
    """One episode; `streams` are the root seed and the episode's number."""
    first, rng = episode_streams(*streams)
    obs, _ = env.reset(seed=first)
    seen, taken, rewards, ends = [copied(obs)], [], [], []
    carry, is_first = policy.initial_carry(1), np.ones(1, bool)
    while True:
        rows = stack_obs([obs])
        result = policy.act(rows, carry, is_first, rng, deterministic=not how.stochastic)
        carry, is_first = result.carry, np.zeros(1, bool)
        action = how.applied(result.env_actions, space, rows, rng)[0]
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append(copied(obs))
        taken.append(np.array(action, space.dtype))
        rewards.append(float(reward))
        if REWARD in carry:
            carry[REWARD] = np.array([reward], np.float32)
        cut = not terminated and len(rewards) == limit
        ends.append((bool(terminated), bool(truncated) or cut))
        if any(ends[-1]):
            break
    flags, whole = np.array(ends, np.bool_), bool(terminated or truncated)
    return Steps(stack_obs(seen), np.array(taken), np.array(rewards), flags[:, 0], flags[:, 1], seed=first, whole=whole)
