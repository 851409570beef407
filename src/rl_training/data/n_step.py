"""n-step transitions, computed at sampling time from stored 1-step ones: rewards summed along one environment.

A window has n rows, fewer where an episode ends in it. A truncated episode bootstraps from its true final observation
like any other window: `rewards + discounts * (1 - terminated) * value(next_obs)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rl_training.types import Array, ConfigError


class Outcomes(NamedTuple):
    """Rewards and ends of a batch of transitions, (B,) each."""

    rewards: Array
    terminated: Array
    truncated: Array


class Windows(NamedTuple):
    """Rewards and ends of a batch of n-step windows, (B,) each."""

    rewards: Array
    """Discounted sums of rewards."""
    discounts: Array
    """gamma ** (number of rows): the discount of the bootstrap value."""
    terminated: Array
    truncated: Array
    last: Array
    """The last row of each window, whose next observation is the window's."""


def check_n_step(n_step: int, gamma: float | None, capacity: int, num_envs: int) -> None:
    """Raise ConfigError unless windows of `n_step` can be sampled from `capacity` rows of `num_envs` environments."""
    if n_step < 1:
        raise ConfigError(f"n_step must be at least 1, not {n_step}")
    if gamma is not None and not 0.0 <= gamma <= 1.0:
        raise ConfigError(f"gamma must be between 0 and 1, not {gamma}")
    if n_step > 1 and gamma is None:
        raise ConfigError(f"n_step {n_step} sums discounted rewards: give the buffer gamma too")
    if capacity < n_step * num_envs:
        raise ConfigError(
            f"a buffer of {capacity} transitions cannot hold {n_step} steps of {num_envs} environments: raise "
            "buffer.size"
        )


def n_step_windows(
    rows: Array,
    n_step: int,
    gamma: float,
    outcomes: Callable[[Array], Outcomes],
    following: Callable[[Array], tuple[Array, Array]],
) -> Windows:
    """Sum up to `n_step` rewards from each of `rows` on, vectorised over rows.

    `outcomes(rows)` returns rewards and ends of rows; `following(rows)` returns the next rows of the same environments
    and whether they hold a transition.
    """
    rewards, terminated, truncated = outcomes(rows)
    total = rewards.astype(np.float64)
    discounts = np.full(len(rows), gamma, np.float64)
    last = rows
    for _ in range(n_step - 1):
        after, exists = following(last)
        goes_on = exists & ~(terminated | truncated)
        if not goes_on.any():
            break
        last = np.where(goes_on, after, last)
        rewards, ends, cuts = outcomes(last)
        total += np.where(goes_on, discounts * rewards, 0.0)
        discounts = np.where(goes_on, gamma * discounts, discounts)
        terminated = np.where(goes_on, ends, terminated)
        truncated = np.where(goes_on, cuts, truncated)
    return Windows(total.astype(np.float32), discounts.astype(np.float32), terminated, truncated, last)


def closed_windows(ended: Array, skipped: Array) -> Array:
    """Which of the newest rows (T, N) have a complete window already, because their episode ends among them.

    Skipped rows separate episodes, so a window also ends in front of one; they never start a window themselves.
    """
    over = ended.copy()
    over[:-1] |= skipped[1:]
    closed: Array = np.logical_or.accumulate(over[::-1])[::-1] & ~skipped
    return closed
