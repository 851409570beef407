"""Action distributions as functions of their parameters: one record per kind of action space.

Parameters are (outputs, log_std): the logits of discrete actions or the means of Gaussian ones, (B, size), and the log
standard deviations (size,) of the latter. `sample` works on NumPy and on JAX arrays alike; its noise is drawn by
whoever acts, in the kind and shape that `noise` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.types import Noise
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec, SpaceSpec

MASKED_LOGIT = -1e8  # finite: 0 probability in float32, and 0 * log(0) stays 0 in the entropy
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)

Parameters = tuple[Any, Any]


class Distribution(NamedTuple):
    """What an algorithm asks of actions. A mask is 1 where an action is allowed, or None."""

    size: int
    """Numbers the network puts out per row."""
    noise: Noise
    sample: Callable[[Parameters, Any, Any, bool], Any]
    """(parameters, noise, mask, deterministic) -> actions (B, ...)"""
    logprob_entropy: Callable[[Parameters, Any, Any], tuple[Any, Any]]
    """(parameters, actions, mask) -> log-probability and entropy of each row, (B,)"""
    has_log_std: bool = False


def distribution(space: SpaceSpec) -> Distribution:
    """The distribution that fits an action space."""
    if isinstance(space, DiscreteSpec):
        return categorical(space.n)
    if isinstance(space, MultiDiscreteSpec):
        return multi_categorical(space.nvec)
    if isinstance(space, MultiBinarySpec):
        return bernoulli(space.n)
    if isinstance(space, BoxSpec):
        return gaussian(space.shape)
    raise ConfigError("Dict and Tuple action spaces are not supported; flatten the actions in a wrapper")


def categorical(n: int) -> Distribution:
    """One choice out of n."""

    def sample(parameters: Parameters, noise: Any, mask: Any, deterministic: bool) -> Any:
        logits = masked(parameters[0], mask)
        return (logits if deterministic else logits + noise).argmax(1)  # the Gumbel-max trick

    def logprob_entropy(parameters: Parameters, actions: Any, mask: Any) -> tuple[Any, Any]:
        return categorical_logprob_entropy(masked(parameters[0], mask), actions)

    return Distribution(n, Noise("gumbel", (n,)), sample, logprob_entropy)


def multi_categorical(nvec: tuple[int, ...]) -> Distribution:
    """Several independent choices at once; a mask covers them one after the other."""
    starts = [sum(nvec[:i]) for i in range(len(nvec))]
    parts = [slice(start, start + n) for start, n in zip(starts, nvec, strict=True)]

    def sample(parameters: Parameters, noise: Any, mask: Any, deterministic: bool) -> Any:
        logits = masked(parameters[0], mask)
        logits = logits if deterministic else logits + noise
        stack = np.stack if isinstance(logits, np.ndarray) else jnp.stack
        return stack([logits[:, part].argmax(1) for part in parts], axis=1)

    def logprob_entropy(parameters: Parameters, actions: Any, mask: Any) -> tuple[Any, Any]:
        logits = masked(parameters[0], mask)
        pairs = [categorical_logprob_entropy(logits[:, part], actions[:, i]) for i, part in enumerate(parts)]
        return sum(logprob for logprob, _ in pairs), sum(entropy for _, entropy in pairs)

    return Distribution(sum(nvec), Noise("gumbel", (sum(nvec),)), sample, logprob_entropy)


def bernoulli(n: int) -> Distribution:
    """n independent switches. A mask of 0 keeps a switch off."""

    def sample(parameters: Parameters, noise: Any, mask: Any, deterministic: bool) -> Any:
        logits = masked(parameters[0], mask)
        if not deterministic:  # sigmoid(x) > u is x + logistic noise > 0
            xp = np if isinstance(logits, np.ndarray) else jnp
            logits = logits + xp.log(noise) - xp.log1p(-noise)
        return (logits > 0).astype(np.int8)

    def logprob_entropy(parameters: Parameters, actions: Any, mask: Any) -> tuple[Any, Any]:
        logits = masked(parameters[0], mask)
        on, off = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
        entropy = -(jax.nn.sigmoid(logits) * on + jax.nn.sigmoid(-logits) * off).sum(1)
        return jnp.where(actions > 0, on, off).sum(1), entropy

    return Distribution(n, Noise("uniform", (n,)), sample, logprob_entropy)


def gaussian(shape: tuple[int, ...]) -> Distribution:
    """A mean per state and one learnt standard deviation per action dimension."""
    size = math.prod(shape)

    def sample(parameters: Parameters, noise: Any, mask: Any, deterministic: bool) -> Any:
        means, log_std = parameters
        if not deterministic:
            xp = np if isinstance(means, np.ndarray) else jnp
            means = means + xp.exp(log_std) * noise
        return means.reshape(-1, *shape)

    def logprob_entropy(parameters: Parameters, actions: Any, mask: Any) -> tuple[Any, Any]:
        means, log_std = parameters
        standardized = (actions.reshape(means.shape) - means) * jnp.exp(-log_std)
        logprob = (-0.5 * jnp.square(standardized) - log_std - HALF_LOG_2PI).sum(1)
        entropy = jnp.broadcast_to((log_std + 0.5 + HALF_LOG_2PI).sum(), logprob.shape)
        return logprob, entropy

    return Distribution(size, Noise("normal", (size,)), sample, logprob_entropy, has_log_std=True)


def masked(logits: Any, mask: Any) -> Any:
    if mask is None:
        return logits
    xp = np if isinstance(logits, np.ndarray) else jnp
    return xp.where(mask == 0, MASKED_LOGIT, logits)


def categorical_logprob_entropy(logits: Any, actions: Any) -> tuple[Any, Any]:
    """Log-probability of each row's action and the entropy of each row."""
    log_probabilities = jax.nn.log_softmax(logits)  # (B, A)
    logprob = jnp.take_along_axis(log_probabilities, actions[:, None].astype(jnp.int32), axis=1)[:, 0]
    return logprob, -(jnp.exp(log_probabilities) * log_probabilities).sum(1)


def draw(noise: Noise, key: Any, leading: tuple[int, ...]) -> Any:
    """Noise of shape (*leading, *noise.shape) from a key."""
    shape = (*leading, *noise.shape)
    flat = (math.prod(shape),)  # the same numbers, but half of the time to compile
    if noise.kind == "gumbel":
        numbers = jax.random.gumbel(key, flat)
    elif noise.kind == "normal":
        numbers = jax.random.normal(key, flat)
    else:
        numbers = jax.random.uniform(key, flat, minval=np.finfo(np.float32).tiny)
    return numbers.reshape(shape)


def draw_numpy(noise: Noise, rng: np.random.Generator, count: int) -> Any:
    """The same from a NumPy generator, as the torch twins draw it."""
    shape = (count, *noise.shape)
    if noise.kind == "gumbel":
        return -np.log(rng.standard_exponential(shape))
    if noise.kind == "normal":
        return rng.standard_normal(shape, dtype=np.float32)
    return 1.0 - rng.random(shape)
