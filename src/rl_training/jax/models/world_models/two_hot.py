"""Two-hot predictions in JAX: the twin of `rl_training.models.world_models.two_hot`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rl_training.jax.models.layers import library


def symlog(x: Any) -> Any:
    """sign(x) log(1 + |x|)."""
    xp = library(x)
    return xp.sign(x) * xp.log1p(xp.abs(x))


def symexp(x: Any) -> Any:
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def neighbours(values: Any, bins: Any) -> tuple[Any, Any, Any]:
    """The two bins around each value, and the share of the upper one; beyond the outermost bins it is all theirs."""
    bins = jnp.asarray(bins)  # an array of NumPy cannot be indexed by traced numbers
    inside = jnp.clip(values, bins[0], bins[-1])
    upper = jnp.clip(jnp.searchsorted(bins, inside), 1, len(bins) - 1)
    lower = upper - 1
    below, above = bins[lower], bins[upper]
    return lower, upper, (inside - below) / (above - below)


def two_hot(values: Any, bins: Any) -> Any:
    """Targets (..., K) of `values` (...) over K increasing `bins`."""
    lower, upper, share = neighbours(values, bins)
    count = len(bins)
    return (1.0 - share)[..., None] * jax.nn.one_hot(lower, count) + share[..., None] * jax.nn.one_hot(upper, count)


def two_hot_loss(logprobs: Any, values: Any, bins: Any) -> Any:
    """Cross-entropy (...) of predictions (..., K) and the two-hot targets of `values` (...), which get no gradient."""
    lower, upper, share = neighbours(jax.lax.stop_gradient(values), bins)
    below = jnp.take_along_axis(logprobs, lower[..., None], -1)[..., 0]
    above = jnp.take_along_axis(logprobs, upper[..., None], -1)[..., 0]
    return -((1.0 - share) * below + share * above)


def two_hot_mean(logprobs: Any, bins: Any) -> Any:
    """Mean (...) of predictions (..., K) over antisymmetric `bins`, summed in mirrored pairs; see the torch twin."""
    probs = jnp.exp(logprobs)
    half = len(bins) // 2
    return (probs[..., -half:] - probs[..., :half][..., ::-1]) @ bins[-half:]
