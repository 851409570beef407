"""Scale of imagined returns in JAX: the twin of `rl_training.numerics.return_scale`, with its state as an array."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

PERCENTILES = (5.0, 95.0)
"""Their distance is the range of the returns."""


def return_scale(
    averages: Any, returns: Any, *, rate: float = 0.01, floor: float = 1.0, updates: Any = None
) -> tuple[Any, Any]:
    """Averages (2,) of the two percentiles, moved by this batch of returns, and what advantages are divided by.

    The averages start at 0. They are corrected for it where `updates`, the number of updates with this one, is given.
    """
    averages = averages + rate * (jnp.percentile(returns, jnp.array(PERCENTILES)) - averages)
    width = averages[1] - averages[0]
    if updates is not None:
        width = width / -jnp.expm1(updates * np.log1p(-rate))  # 1 - (1 - rate)^updates
    return averages, jnp.maximum(floor, width)
