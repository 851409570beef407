"""Carry of a policy with gSDE (state-dependent exploration, Raffin et al. 2021, arXiv:2005.05719), for torch and JAX.

The carry holds the standard normal draw behind the noise matrix, not the matrix: every step scales it by the current
standard deviations. The noise thus agrees with the log-probabilities, even if an update changes `log_std` in the middle
of an episode. The functions take NumPy and JAX arrays alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.types import Carry


def first_draws(num_envs: int, features: int, size: int) -> Carry:
    """Carry before the first step: zeros, which the first step replaces because `age` is 0."""
    return {"draws": np.zeros((num_envs, features, size), np.float32), "age": np.zeros(num_envs, np.int32)}


def due(age: Any, is_first: Any, every: int) -> tuple[Any, Any]:
    """(which environments resample at this step, their ages after it): at the start of an episode and then every
    `every` steps; -1 resamples at the start only."""
    age = age * ~is_first
    if every > 0:
        return age % every == 0, (age + 1) % every
    return age == 0, age * 0 + 1


def carry_like(expected: Carry, saved: Carry) -> Carry:
    """A saved carry with the entries of `expected`. Version 0.1.0 saved noise matrices already scaled by earlier
    standard deviations; the draws behind them cannot be recovered, so the next step resamples."""
    if "draws" not in expected or "draws" in saved:
        return dict(saved)
    fresh = {name: np.zeros_like(expected[name]) for name in ("draws", "age")}
    return {**{name: saved[name] for name in expected if name not in fresh}, **fresh}
