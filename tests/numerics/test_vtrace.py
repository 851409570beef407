"""V-trace against numbers worked out by hand, against its definition, against GAE, and on a chain with known values."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.numerics.returns import VTraceOptions, gae, vtrace
from rl_training.types import Array

REWARDS = np.array([1.0, 0.0, 2.0, -1.0, 0.5, 1.0])
VALUES = np.array([0.5, 0.4, 0.3, 0.2, 0.1, 0.6])
NEXT_VALUES = np.array([0.4, 0.3, 0.7, 0.1, 0.6, 0.9])
INSIDE = np.array([0.4, 0.3, 0.2, 0.1, 0.6, 0.9])
"""Next values where no episode ends."""
RATIOS = np.array([0.5, 2.0, 1.0, 0.25, 4.0, 1.0])
AT_2 = np.array([False, False, True, False, False, False])
NEVER = np.zeros(6, bool)
OPTIONS = VTraceOptions(gamma=0.9)


def test_a_truncated_episode_is_completed_by_the_value_of_its_last_observation() -> None:
    advantages, targets = vtrace(REWARDS, VALUES, NEXT_VALUES, NEVER, AT_2, RATIOS, OPTIONS)
    np.testing.assert_allclose(targets, [1.81515, 2.367, 2.63, 0.379025, 2.129, 1.81], atol=1e-12)
    np.testing.assert_allclose(advantages, [1.31515, 1.967, 2.33, 0.179025, 2.029, 1.21], atol=1e-12)


def test_a_terminated_episode_is_not() -> None:
    advantages, targets = vtrace(REWARDS, VALUES, NEXT_VALUES, AT_2, AT_2, RATIOS, OPTIONS)
    np.testing.assert_allclose(targets, [1.56, 1.8, 2.0, 0.379025, 2.129, 1.81], atol=1e-12)
    np.testing.assert_allclose(advantages, [1.06, 1.4, 1.7, 0.179025, 2.029, 1.21], atol=1e-12)


def test_with_equal_policies_the_targets_are_n_step_returns() -> None:
    _, targets = vtrace(REWARDS, VALUES, INSIDE, NEVER, NEVER, np.ones(6), OPTIONS)
    np.testing.assert_allclose(targets, [3.2878369, 2.542041, 2.82449, 0.9161, 2.129, 1.81], atol=1e-12)


def test_with_equal_policies_and_a_lambda_they_are_those_of_gae() -> None:
    _, targets = vtrace(REWARDS, VALUES, INSIDE, NEVER, NEVER, np.ones(6), VTraceOptions(0.9, 0.8))
    expected = [2.313425999872, 1.7242027776, 2.31972608, 0.394064, 1.9112, 1.81]
    np.testing.assert_allclose(targets, expected, atol=1e-12)
    _, returns = gae(REWARDS, VALUES, INSIDE, NEVER, NEVER, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(targets, returns, atol=1e-12)


def by_definition(
    rewards: Array, values: Array, following: Array, terminated: Array, ends: Array, ratios: Array, o: VTraceOptions
) -> Array:
    """v_s = V(x_s) + sum over t of gamma^(t-s) (product of c) rho_t delta_t, term by term."""
    rho, c = np.minimum(ratios, o.rho_clip), o.gae_lambda * np.minimum(ratios, o.c_clip)
    deltas = rho * (rewards + o.gamma * np.where(terminated, 0.0, following) - values)
    targets = values.copy()
    for s in range(len(rewards)):
        weight = 1.0
        for t in range(s, len(rewards)):
            targets[s] += weight * deltas[t]
            if ends[t]:
                break
            weight *= o.gamma * c[t]
    return targets


def test_the_recursion_is_the_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        length = int(rng.integers(1, 12))
        ends = rng.random(length) < 0.25
        terminated = ends & (rng.random(length) < 0.5)
        values, edge = rng.normal(size=length), rng.normal(size=length)
        following = np.where(ends, edge, np.append(values[1:], edge[-1]))
        ratios = np.exp(rng.normal(size=length))
        options = VTraceOptions(rng.uniform(0.5, 1.0), rng.uniform(0.0, 1.0), 1.5, 1.1, 1.3)
        rewards = rng.normal(size=length)
        advantages, targets = vtrace(rewards, values, following, terminated, ends, ratios, options)
        expected = by_definition(rewards, values, following, terminated, ends, ratios, options)
        np.testing.assert_allclose(targets, expected, atol=1e-12)
        after = np.where(ends | (np.arange(length) == length - 1), following, np.append(expected[1:], 0.0))
        bootstrap = np.where(terminated, 0.0, options.gamma * after)
        np.testing.assert_allclose(advantages, np.minimum(ratios, 1.3) * (rewards + bootstrap - values), atol=1e-12)


def test_rows_that_are_no_transitions_are_skipped() -> None:
    """As in `gae`: what comes before them sees what comes after them."""
    valid = np.array([True, True, False, True, True, True])
    keep = np.flatnonzero(valid)
    following = np.array([0.4, 0.2, 0.2, 0.1, 0.6, 0.9])
    values = VALUES.copy()
    advantages, targets = vtrace(REWARDS, values, following, NEVER, NEVER, RATIOS, OPTIONS, valid)
    short = [column[keep] for column in (REWARDS, values, following, NEVER, NEVER, RATIOS)]
    expected = vtrace(*short, OPTIONS)
    np.testing.assert_allclose(advantages[keep], expected[0], atol=1e-12)
    np.testing.assert_allclose(targets[keep], expected[1], atol=1e-12)
    assert advantages[2] == 0.0
    assert targets[2] == values[2]


def test_float32_stays_float32() -> None:
    columns = [column.astype(np.float32) for column in (REWARDS, VALUES, INSIDE)]
    advantages, targets = vtrace(*columns, NEVER, NEVER, RATIOS.astype(np.float32), OPTIONS)
    assert advantages.dtype == targets.dtype == np.float32


# -- a chain with known values ----------------------------------------------------------------------------------------

GAMMA, STATES, STAY = 0.9, 5, -0.05
MU = np.array([0.3, 0.7])
"""Probabilities of going on (reward 1 at the end) and of staying (reward STAY), of the policy that acts."""
PI = np.array([0.8, 0.2])
"""The same of the policy that learns."""


def chain_values(policy: Array) -> Array:
    """V of every state: the policy goes on to the next state or stays; behind the last one the episode is over."""
    matrix, rewards = np.eye(STATES), np.zeros(STATES)
    for s in range(STATES):
        rewards[s] = policy[0] * (s == STATES - 1) + policy[1] * STAY
        matrix[s, s] -= GAMMA * policy[1]
        if s + 1 < STATES:
            matrix[s, s + 1] -= GAMMA * policy[0]
    return np.linalg.solve(matrix, rewards)


def clipped_policy(rho_clip: float) -> Array:
    """The policy whose values V-trace learns: min(rho_clip * mu, pi), normalised (Espeholt et al. 2018, equation 3)."""
    weights = np.minimum(rho_clip * MU, PI)
    return weights / weights.sum()


def learnt_values(ratios: Array, options: VTraceOptions, updates: int = 400, num_envs: int = 4000) -> Array:
    """A table of values learnt from rollouts of mu, with the given ratio of each action."""
    rng = np.random.default_rng(1)
    table, average = np.zeros(STATES), np.zeros(STATES)
    states = rng.integers(STATES, size=num_envs)
    for update in range(updates):
        columns: dict[str, list[Array]] = {name: [] for name in ("x", "a", "r", "end", "y")}
        for _ in range(8):
            actions = (rng.random(num_envs) >= MU[0]).astype(int)
            ended = (actions == 0) & (states == STATES - 1)
            following = np.where(actions == 0, states + 1, states) % STATES
            rewards = np.where(actions == 1, STAY, ended.astype(float))
            for name, value in zip(columns, (states, actions, rewards, ended, following), strict=True):
                columns[name].append(value)
            states = following
        x, a, r, end, y = (np.array(columns[name]) for name in columns)
        _, targets = vtrace(r, table[x], table[y], end, end, ratios[a], options)
        step = 0.5 if update < updates // 2 else 0.05
        for s in range(STATES):
            table[s] += step * (targets[x == s] - table[s]).mean()
        average += table / (updates // 4) if update >= updates - updates // 4 else 0.0
    return average


@pytest.mark.parametrize("rho_clip", [1.0, 1.5])
def test_the_critic_learns_the_values_of_the_clipped_policy(rho_clip: float) -> None:
    options = VTraceOptions(GAMMA, 1.0, rho_clip, 1.0)
    expected = chain_values(clipped_policy(rho_clip))
    np.testing.assert_allclose(learnt_values(PI / MU, options), expected, atol=1e-2)
    for other in (MU, PI):  # what it would be mistaken for
        assert np.abs(expected - chain_values(other)).max() > 0.04


def test_without_correction_it_learns_those_of_the_policy_that_acts() -> None:
    np.testing.assert_allclose(learnt_values(np.ones(2), VTraceOptions(GAMMA)), chain_values(MU), atol=1e-2)


def test_without_clipping_it_learns_those_of_the_policy_that_learns() -> None:
    options = VTraceOptions(GAMMA, 1.0, 10.0, 1.0)
    np.testing.assert_allclose(learnt_values(PI / MU, options), chain_values(PI), atol=1e-2)
