"""Action distributions as pure functions of their parameters: one record per kind of action space.

`sample` works on NumPy and on JAX arrays; the caller draws its noise, of the kind and shape given by `noise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.models.layers import library
from rl_training.jax.types import Noise
from rl_training.numerics.gsde import due
from rl_training.numerics.stable import HALF_LOG_2PI
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec, SpaceSpec

MASKED_LOGIT = -1e8  # finite: 0 probability in float32, and 0 * log(0) stays 0 in the entropy


class Parameters(NamedTuple):
    """Parameters of the action distribution, from the network."""

    outputs: Any
    """Logits of discrete actions or means of Gaussian ones, (B, size)."""
    log_std: Any = None
    """Gaussian only: log standard deviations (size,); with gSDE those of the noise matrix (F, size)."""
    features: Any = None
    """Inputs of the action head, (B, F), from which gSDE computes its noise."""


class Distribution(NamedTuple):
    """A distribution over actions. A mask is 1 where an action is allowed, or None."""

    size: int
    """Number of network outputs per row."""
    noise: Noise
    """The random numbers that `sample` needs per row."""
    sample: Callable[[Parameters, Any, Any, bool], Any]
    """(parameters, noise, mask, deterministic) -> actions (B, ...)"""
    logprob_entropy: Callable[[Parameters, Any, Any], tuple[Any, Any]]
    """(parameters, actions, mask) -> log-probability and entropy of each row, (B,)"""
    has_log_std: bool = False
    state_dependent: bool = False
    """gSDE: the noise is a standard normal matrix (F, size) per row that is kept for several steps; see `renewed`."""


def distribution(space: SpaceSpec, *, use_sde: bool = False) -> Distribution:
    """The distribution for an action space; `use_sde` affects only Box actions."""
    if isinstance(space, DiscreteSpec):
        return categorical(space.n)
    if isinstance(space, MultiDiscreteSpec):
        return multi_categorical(space.nvec)
    if isinstance(space, MultiBinarySpec):
        return bernoulli(space.n)
    if isinstance(space, BoxSpec):
        return state_dependent_gaussian(space.shape) if use_sde else gaussian(space.shape)
    raise ConfigError("Dict and Tuple action spaces are not supported; flatten the actions in a wrapper")


def categorical(n: int) -> Distribution:
    """One choice out of n."""

    def sample(parameters: Parameters, noise: Any, mask: Any, deterministic: bool) -> Any:
        logits = masked(parameters.outputs, mask)
        return (logits if deterministic else logits + noise).argmax(1)  # the Gumbel-max trick

    def logprob_entropy(parameters: Parameters, actions: Any, mask: Any) -> tuple[Any, Any]:
        return categorical_logprob_entropy(masked(parameters.outputs, mask), actions)

    return Distribution(n, Noise("gumbel", (n,)), sample, logprob_entropy)


def multi_categorical(nvec: tuple[int, ...]) -> Distribution:
    """Several independent choices; the mask is their masks concatenated."""
    starts = [sum(nvec[:i]) for i in range(len(nvec))]
    parts = [slice(start, start + n) for start, n in zip(starts, nvec, strict=True)]

    def sample(parameters: Parameters, noise: Any, mask: Any, deterministic: bool) -> Any:
        logits = masked(parameters.outputs, mask)
        logits = logits if deterministic else logits + noise
        return library(logits).stack([logits[:, part].argmax(1) for part in parts], axis=1)

    def logprob_entropy(parameters: Parameters, actions: Any, mask: Any) -> tuple[Any, Any]:
        logits = masked(parameters.outputs, mask)
        pairs = [categorical_logprob_entropy(logits[:, part], actions[:, i]) for i, part in enumerate(parts)]
        return sum(logprob for logprob, _ in pairs), sum(entropy for _, entropy in pairs)

    return Distribution(sum(nvec), Noise("gumbel", (sum(nvec),)), sample, logprob_entropy)


def bernoulli(n: int) -> Distribution:
    """n independent binary actions. Where the mask is 0, the action is 0."""

    def sample(parameters: Parameters, noise: Any, mask: Any, deterministic: bool) -> Any:
        logits = masked(parameters.outputs, mask)
        if not deterministic:  # sigmoid(x) > u is x + logistic noise > 0
            xp = library(logits)
            logits = logits + xp.log(noise) - xp.log1p(-noise)
        return (logits > 0).astype(np.int8)

    def logprob_entropy(parameters: Parameters, actions: Any, mask: Any) -> tuple[Any, Any]:
        logits = masked(parameters.outputs, mask)
        on, off = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
        entropy = -(jax.nn.sigmoid(logits) * on + jax.nn.sigmoid(-logits) * off).sum(1)
        return jnp.where(actions > 0, on, off).sum(1), entropy

    return Distribution(n, Noise("uniform", (n,)), sample, logprob_entropy)


def gaussian(shape: tuple[int, ...]) -> Distribution:
    """A state-dependent mean and one learnt standard deviation per action dimension."""
    size = math.prod(shape)

    def sample(parameters: Parameters, noise: Any, mask: Any, deterministic: bool) -> Any:
        means = parameters.outputs
        if not deterministic:
            means = means + library(means).exp(parameters.log_std) * noise
        return means.reshape(-1, *shape)

    def logprob_entropy(parameters: Parameters, actions: Any, mask: Any) -> tuple[Any, Any]:
        means, log_std, _ = parameters
        standardized = (actions.reshape(means.shape) - means) * jnp.exp(-log_std)
        logprob = (-0.5 * jnp.square(standardized) - log_std - HALF_LOG_2PI).sum(1)
        entropy = jnp.broadcast_to((log_std + 0.5 + HALF_LOG_2PI).sum(-1), logprob.shape)
        return logprob, entropy

    return Distribution(size, Noise("normal", (size,)), sample, logprob_entropy, has_log_std=True)


# -- gSDE -------------------------------------------------------------------------------------------------------------


def state_dependent_gaussian(shape: tuple[int, ...]) -> Distribution:
    """gSDE (Raffin et al. 2022, arXiv:2005.05719): the noise is a linear function of the features, so that it is smooth
    in time until its matrix is drawn again."""
    plain = gaussian(shape)

    def sample(parameters: Parameters, noise: Any, mask: Any, deterministic: bool) -> Any:
        means = parameters.outputs
        if not deterministic:
            xp = library(means)
            matrices = xp.exp(parameters.log_std) * noise
            means = means + xp.einsum("bf,bfa->ba", parameters.features, matrices)
        return means.reshape(-1, *shape)

    def logprob_entropy(parameters: Parameters, actions: Any, mask: Any) -> tuple[Any, Any]:
        # no gradient from the exploration scale into the features
        squares = jnp.square(jax.lax.stop_gradient(parameters.features))
        variance = squares @ jnp.square(jnp.exp(parameters.log_std))
        implied = parameters._replace(log_std=0.5 * jnp.log(variance + 1e-6))
        return plain.logprob_entropy(implied, actions, mask)

    return plain._replace(sample=sample, logprob_entropy=logprob_entropy, state_dependent=True)


def renewed(carry: dict[str, Any], is_first: Any, noise: Any, every: int) -> dict[str, Any]:
    """The gSDE matrices for this step: the new ones in `noise` where they are due, else those of the previous step."""
    stale, age = due(carry["age"], is_first, every)
    return {"draws": library(noise).where(stale[:, None, None], noise, carry["draws"]), "age": age}


def masked(logits: Any, mask: Any) -> Any:
    """Logits with MASKED_LOGIT where an action is not allowed."""
    if mask is None:
        return logits
    return library(logits).where(mask == 0, MASKED_LOGIT, logits)


def categorical_logprob_entropy(logits: Any, actions: Any) -> tuple[Any, Any]:
    """Log-probability of each row's action and the entropy of each row."""
    log_probabilities = jax.nn.log_softmax(logits)  # (B, A)
    logprob = jnp.take_along_axis(log_probabilities, actions[:, None].astype(jnp.int32), axis=1)[:, 0]
    return logprob, -(jnp.exp(log_probabilities) * log_probabilities).sum(1)


def draw(noise: Noise, key: Any, leading: tuple[int, ...]) -> Any:
    """Noise of shape (*leading, *noise.shape) from a key."""
    shape = (*leading, *noise.shape)
    flat = (math.prod(shape),)  # the same numbers as with `shape`, in half the compile time
    if noise.kind == "gumbel":
        numbers = jax.random.gumbel(key, flat)
    elif noise.kind == "normal":
        numbers = jax.random.normal(key, flat)
    else:
        numbers = jax.random.uniform(key, flat, minval=np.finfo(np.float32).tiny)
    return numbers.reshape(shape)


def draw_numpy(noise: Noise, rng: np.random.Generator, count: int) -> Any:
    """Noise of shape (count, *noise.shape) from a NumPy generator, drawn as the torch twins draw it."""
    shape = (count, *noise.shape)
    if noise.kind == "gumbel":
        return -np.log(rng.standard_exponential(shape))
    if noise.kind == "normal":
        return rng.standard_normal(shape, dtype=np.float32)
    return 1.0 - rng.random(shape)
