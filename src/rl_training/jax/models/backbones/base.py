"""What a backbone is: a record of pure functions, `init` for the weights and `apply` for the features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rl_training.jax.models.layers import Params


class Network(NamedTuple):
    """One backbone: observations to features (B, out_features)."""

    init: Callable[[np.random.Generator], Params]
    """(rng) -> initial weights, drawn in NumPy and named as in the torch twin."""
    apply: Callable[[Params, Any], Any]
    """(params, obs) -> features, or the input of `step` where the network has memory."""
    out_features: int
    step: Callable[[Params, Any, Any], Any] | None = None
    """Networks with memory only: (params, carry, output of `apply`) -> (features, next carry). Only this runs step by
    step; `apply` sees a whole rollout at once. Without `initial_carry` the carry is one array (B, out_features) which
    is also the features, and `step` returns it alone."""
    initial_carry: Callable[[int], Any] | None = None
    """(B) -> the carry at the start of B episodes: an array or a dict of arrays, a row per environment."""
    follow: Callable[[Params, Any, Any, Any], tuple[Any, Callable[[Any], Any]]] | None = None
    """(params, carry, outputs of `apply` (N, T, ...), is_first (N, T)) -> features (N, T, out_features), and a function
    t -> the carry after step t. For memories that can see all steps at once; without it `step` is scanned."""
