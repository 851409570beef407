"""Ape-X (Horgan et al. 2018, arXiv:1803.00933): how the environments of DQN explore and rank what they see.

Used with `env.collection: async`. Every environment keeps its own share of random actions, from many to hardly any, and
transitions enter prioritised replay with errors that the acting network computed, not with the largest priority so far.
"""

from __future__ import annotations

import numpy as np

from rl_training.algorithms.random import random_actions
from rl_training.numerics.returns import n_step_sums
from rl_training.types import (
    ACTION_MASK,
    ActResult,
    Array,
    Carry,
    Obs,
    Policy,
    SpaceSpec,
    StateDict,
)


def ladder_epsilon(index: int, num_envs: int, *, base: float, exponent: float) -> float:
    """Share of random actions of one environment: base^(1 + exponent * i / (N - 1)), equation 1 of the paper.

    >>> [round(ladder_epsilon(i, 3, base=0.4, exponent=7.0), 6) for i in range(3)]
    [0.4, 0.016191, 0.000655]
    """
    return float(base ** (1.0 + exponent * index / max(num_envs - 1, 1)))


def first_errors(
    values: Array, next_values: Array, rewards: Array, terminated: Array, ends: Array, *, gamma: float, n: int
) -> Array:
    """Magnitudes (T, N) of n-step errors along a block, from the values of the actions taken and the best next values.

    Windows are shorter where an episode or the block ends.

    >>> one = np.ones((3, 1))
    >>> ends = np.zeros((3, 1), bool)
    >>> first_errors(one, 2 * one, one, ends, ends, gamma=0.5, n=2).ravel().tolist()
    [1.0, 1.0, 1.0]
    """
    sums, discounts, last = n_step_sums(rewards, ends, gamma=gamma, n=n)
    columns = np.arange(rewards.shape[1])
    bootstrap = np.where(terminated[last, columns], 0.0, discounts * next_values[last, columns])
    errors: Array = np.abs(sums + bootstrap - values)
    return errors


class LadderPolicy:
    """A greedy policy that takes a fixed share of its actions at random; its weights are those of the policy below."""

    def __init__(self, policy: Policy, action_space: SpaceSpec, epsilon: float) -> None:
        self.policy, self.action_space, self.epsilon = policy, action_space, epsilon

    def initial_carry(self, num_envs: int) -> Carry:
        return self.policy.initial_carry(num_envs)

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        result = self.policy.act(obs, carry, is_first, rng, deterministic=True)
        if deterministic:
            return result
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        explored = random_actions(self.action_space, len(is_first), rng, mask)
        actions = np.where(rng.random(len(is_first)) < self.epsilon, explored, result.actions)
        return ActResult(actions, actions, result.carry, result.extras)

    def state_dict(self) -> StateDict:
        return self.policy.state_dict()

    def load_state_dict(self, state: StateDict, /) -> None:
        self.policy.load_state_dict(state)
