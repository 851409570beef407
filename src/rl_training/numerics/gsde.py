"""What a policy with gSDE (state-dependent exploration, Raffin et al. 2021, arXiv:2005.05719) carries, torch and JAX.

It carries the standard normal draw of its noise matrix, not the matrix: at every step the draw is scaled by the present
standard deviations. The noise thus has the spread that log-probabilities are computed with, also when an update moved
`log_std` in the middle of an episode. The functions take NumPy and JAX arrays alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.types import Carry


def first_draws(num_envs: int, features: int, size: int) -> Carry:
    """Before the first step: nothing drawn, which `age` 0 makes up for."""
    return {"draws": np.zeros((num_envs, features, size), np.float32), "age": np.zeros(num_envs, np.int32)}


def due(age: Any, is_first: Any, every: int) -> tuple[Any, Any]:
    """(which environments draw anew at this step, their ages after it): at the beginning of an episode and `every` so
    many steps of it; -1 is never again."""
    age = age * ~is_first
    if every > 0:
        return age % every == 0, (age + 1) % every
    return age == 0, age * 0 + 1


def carry_like(expected: Carry, saved: Carry) -> Carry:
    """A saved carry with the entries of `expected`. Version 0.1.0 saved matrices that were scaled by the standard
    deviations of an earlier update; they cannot be told apart again, so the next step draws new ones."""
    if "draws" not in expected or "draws" in saved:
        return dict(saved)
    fresh = {name: np.zeros_like(expected[name]) for name in ("draws", "age")}
    return {**{name: saved[name] for name in expected if name not in fresh}, **fresh}
