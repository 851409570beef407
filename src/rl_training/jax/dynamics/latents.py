"""Random parts of a state in JAX: the twin of `rl_training.dynamics.latents`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Belief = dict[str, Any]
"""Parameters of a distribution over the random part of a state."""

MIN_STD = 0.1
"""Smallest standard deviation of a Gaussian latent, as in PlaNet."""
SMALLEST_UNIFORM = 2.0**-24
"""Uniform numbers are kept this far from 0 and 1 where they become normal ones."""


def standard_normal(uniform: Any) -> Any:
    """Standard normal numbers from uniform ones, by the inverse of the distribution function."""
    return jax.scipy.special.ndtri(jnp.clip(uniform, SMALLEST_UNIFORM, 1.0 - SMALLEST_UNIFORM))


def gaussian_divergence(mean: Any, std: Any, other_mean: Any, other_std: Any) -> Any:
    """KL(N(mean, std) || N(other)) of diagonal Gaussians, summed over the last axis."""
    ratio = std / other_std
    terms = 0.5 * (jnp.square(ratio) + jnp.square((mean - other_mean) / other_std) - 1.0) - jnp.log(ratio)
    return terms.sum(-1)


def mixed_logits(logits: Any, unimix: float) -> Any:
    """Log-probabilities of (1 - unimix) softmax(logits) + unimix / classes."""
    if unimix == 0.0:
        return jax.nn.log_softmax(logits)
    return jnp.log((1.0 - unimix) * jax.nn.softmax(logits) + unimix / logits.shape[-1])


def sampled_class(probs: Any, uniform: Any) -> Any:
    """Class numbers (...) of probabilities (..., C): how many entries of the cumulative sum are below `uniform`."""
    return (jnp.cumsum(probs[..., :-1], -1) < uniform[..., None]).sum(-1)


def straight_through(logprobs: Any, uniform: Any) -> Any:
    """One-hot samples (..., C) whose gradient is that of the probabilities; without `uniform` the most likely class."""
    probs = jnp.exp(logprobs)
    still = jax.lax.stop_gradient(probs)
    index = jnp.argmax(logprobs, -1) if uniform is None else sampled_class(still, uniform)
    return jax.nn.one_hot(index, probs.shape[-1]) + (probs - still)


def categorical_divergence(logprobs: Any, other: Any) -> Any:
    """KL of categoricals (..., count, C), given by log-probabilities, summed over `count`: (...)."""
    return (jnp.exp(logprobs) * (logprobs - other)).sum((-2, -1))
