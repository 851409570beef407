"""Random parts of a state in JAX: the twin of `rl_training.dynamics.latents`; categorical ones in NumPy too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.models.layers import library

Belief = dict[str, Any]
"""Parameters of a distribution over the random part of a state."""

MIN_STD = 0.1
"""Smallest standard deviation of a Gaussian latent, as in PlaNet."""
SMALLEST_UNIFORM = 2.0**-24
"""Uniform numbers are kept this far from 0 and 1 where they become normal ones."""


def standard_normal(uniform: Any) -> Any:
    """Standard normal numbers from uniform ones, by the inverse of the distribution function."""
    return jax.scipy.special.ndtri(jnp.clip(uniform, SMALLEST_UNIFORM, 1.0 - SMALLEST_UNIFORM))


def gaussian_belief(outputs: Any) -> Belief:
    """Mean and standard deviation, softplus + 0.1, of a network's outputs."""
    mean, raw = jnp.split(outputs, 2, axis=-1)
    return {"mean": mean, "std": jax.nn.softplus(raw) + MIN_STD}


def gaussian_sample(belief: Belief, noise: Any) -> Any:
    """A differentiable sample, or the mean without `noise`."""
    return belief["mean"] if noise is None else belief["mean"] + belief["std"] * standard_normal(noise)


def gaussian_divergence(mean: Any, std: Any, other_mean: Any, other_std: Any) -> Any:
    """KL(N(mean, std) || N(other)) of diagonal Gaussians, summed over the last axis."""
    ratio = std / other_std
    terms = 0.5 * (jnp.square(ratio) + jnp.square((mean - other_mean) / other_std) - 1.0) - jnp.log(ratio)
    return terms.sum(-1)


def softmax(logits: Any) -> Any:
    """Probabilities over the last axis."""
    if not isinstance(logits, np.ndarray):
        return jax.nn.softmax(logits)
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def mixed_logits(logits: Any, unimix: float) -> Any:
    """Log-probabilities of (1 - unimix) softmax(logits) + unimix / classes."""
    if unimix == 0.0 and not isinstance(logits, np.ndarray):
        return jax.nn.log_softmax(logits)
    smallest = np.finfo(np.float32).tiny  # in NumPy without a uniform part: a class of probability 0
    mixed = (1.0 - unimix) * softmax(logits) + (unimix / logits.shape[-1] or smallest)
    return library(logits).log(mixed)


def sampled_class(probs: Any, uniform: Any) -> Any:
    """Class numbers (...) of probabilities (..., C): how many entries of the cumulative sum are below `uniform`."""
    return (probs[..., :-1].cumsum(-1) < uniform[..., None]).sum(-1)


def straight_through(logprobs: Any, uniform: Any) -> Any:
    """One-hot samples (..., C) whose gradient is that of the probabilities; without `uniform` the most likely class."""
    probs = library(logprobs).exp(logprobs)
    still = probs if isinstance(probs, np.ndarray) else jax.lax.stop_gradient(probs)
    index = logprobs.argmax(-1) if uniform is None else sampled_class(still, uniform)
    sample = one_hot(index, probs.shape[-1])
    return sample if isinstance(probs, np.ndarray) else sample + (probs - still)


def one_hot(index: Any, classes: int) -> Any:
    """One-hot vectors (..., classes) of class numbers (...)."""
    return np.eye(classes, dtype=np.float32)[index] if isinstance(index, np.ndarray) else jax.nn.one_hot(index, classes)


def categorical_divergence(logprobs: Any, other: Any) -> Any:
    """KL of categoricals (..., count, C), given by log-probabilities, summed over `count`: (...)."""
    return (jnp.exp(logprobs) * (logprobs - other)).sum((-2, -1))
