"""Scale of imagined returns in JAX: the twin of `rl_training.numerics.return_scale`, with its state as an array."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

PERCENTILES = (5.0, 95.0)
"""Their distance is the range of the returns."""


def return_scale(averages: Any, returns: Any, *, rate: Any = 0.01, floor: Any = 1.0) -> tuple[Any, Any]:
    """Averages (2,) of the two percentiles, moved by this batch of returns, and what advantages are divided by.

    The averages start at 0 and are not corrected for it.
    """
    averages = averages + rate * (jnp.percentile(returns, jnp.array(PERCENTILES)) - averages)
    return averages, jnp.maximum(floor, averages[1] - averages[0])
