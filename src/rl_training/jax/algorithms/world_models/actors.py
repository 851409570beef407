"""Policies of Dreamer in JAX: the twin of `rl_training.algorithms.world_models.actors`; `sample` works in NumPy too.

Actions are numbers here: one-hot vectors where discrete, real numbers elsewhere, which may lie beyond -1..1. One
uniform number is the noise of a discrete action, standard normal ones are that of real actions.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from rl_training.jax.dynamics.latents import mixed_logits, one_hot, straight_through
from rl_training.jax.models.layers import library
from rl_training.jax.models.world_models.layers import sigmoid
from rl_training.jax.types import Noise
from rl_training.numerics.stable import HALF_LOG_2PI
from rl_training.types import BoxSpec, DiscreteSpec, SpaceSpec

LOWEST_STD, HIGHEST_STD = 0.1, 1.0


class ActionDistribution(Protocol):
    """A family of distributions over actions, given by the outputs of the policy network."""

    outputs: int
    """Outputs of the policy network."""
    size: int
    """Numbers of an action."""
    noise: Noise
    """Random numbers of one action; the shape is () or (size,)."""

    def sample(self, outputs: Any, noise: Any) -> Any:
        """Actions (..., size), differentiable; without noise the most likely ones."""

    def logprob_entropy(self, outputs: Any, actions: Any) -> tuple[Any, Any]:
        """Log-probability of actions and entropy, both (...)."""

    def as_numbers(self, actions: Any) -> Any:
        """Actions as they are stored (...) to numbers (..., size)."""

    def as_stored(self, numbers: Any) -> Any:
        """The inverse of `as_numbers`, of rows (N, size)."""


class DiscreteActions:
    """One of n actions; `unimix` of a uniform distribution is mixed in."""

    def __init__(self, space: DiscreteSpec, unimix: float) -> None:
        self.outputs = self.size = space.n
        self.unimix = unimix
        self.noise = Noise("uniform", ())

    def sample(self, outputs: Any, noise: Any) -> Any:
        return straight_through(mixed_logits(outputs, self.unimix), noise)

    def logprob_entropy(self, outputs: Any, actions: Any) -> tuple[Any, Any]:
        logprobs = mixed_logits(outputs, self.unimix)
        return (logprobs * actions).sum(-1), -(jnp.exp(logprobs) * logprobs).sum(-1)

    def as_numbers(self, actions: Any) -> Any:
        return one_hot(actions, self.size)

    def as_stored(self, numbers: Any) -> Any:
        return numbers.argmax(-1)


class RealActions:
    """Independent normal actions: mean tanh(m), standard deviation 0.9 sigmoid(s + 2) + 0.1."""

    def __init__(self, space: BoxSpec) -> None:
        self.shape = space.shape
        self.size = math.prod(space.shape)
        self.outputs = 2 * self.size
        self.noise = Noise("normal", (self.size,))

    def moments(self, outputs: Any) -> tuple[Any, Any]:
        """(mean, standard deviation) of actions, (..., size) each."""
        mean, raw = outputs[..., : self.size], outputs[..., self.size :]
        std = (HIGHEST_STD - LOWEST_STD) * sigmoid(raw + 2.0) + LOWEST_STD
        return library(outputs).tanh(mean), std

    def sample(self, outputs: Any, noise: Any) -> Any:
        mean, std = self.moments(outputs)
        return mean if noise is None else mean + std * noise

    def logprob_entropy(self, outputs: Any, actions: Any) -> tuple[Any, Any]:
        mean, std = self.moments(outputs)
        log_std = jnp.log(std)
        logprobs = -0.5 * jnp.square((actions - mean) / std) - log_std - HALF_LOG_2PI
        return logprobs.sum(-1), (0.5 + HALF_LOG_2PI + log_std).sum(-1)

    def as_numbers(self, actions: Any) -> Any:
        leading = actions.shape[: actions.ndim - len(self.shape)]
        return actions.astype(np.float32).reshape(*leading, self.size)

    def as_stored(self, numbers: Any) -> Any:
        return numbers.reshape(-1, *self.shape)


def action_distribution(space: SpaceSpec, unimix: float) -> ActionDistribution:
    """The distribution that fits an action space."""
    if isinstance(space, DiscreteSpec):
        return DiscreteActions(space, unimix)
    assert isinstance(space, BoxSpec), "refused by supports_world_model"
    return RealActions(space)
