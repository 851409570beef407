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
    """(params, obs) -> features, or the input of `step` where the network is recurrent."""
    out_features: int
    step: Callable[[Params, Any, Any], Any] | None = None
    """Recurrent networks only: (params, memory (B, out_features), output of `apply`) -> next memory, which is also the
    features. Only this runs step by step; `apply` sees a whole rollout at once."""
