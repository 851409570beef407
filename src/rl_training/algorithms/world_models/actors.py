"""Policies of Dreamer: from the features of a state to a distribution of actions, discrete or continuous.

Actions are numbers here: one-hot vectors where discrete, real numbers elsewhere. A real one may lie beyond -1..1; the
environment gets it clipped and the dynamics scale it. Noise is an argument: one uniform number per discrete action,
standard normal ones for real actions.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.dynamics.latents import mixed_logits, straight_through
from rl_training.numerics.stable import HALF_LOG_2PI
from rl_training.types import Array, BoxSpec, DiscreteSpec, SpaceSpec

LOWEST_STD, HIGHEST_STD = 0.1, 1.0


class ActionDistribution(Protocol):
    """A family of distributions over actions, given by the outputs of the policy network."""

    outputs: int
    """Outputs of the policy network."""
    size: int
    """Numbers of an action."""

    def draw(self, rows: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Noise for actions of `rows`."""

    def sample(self, outputs: Tensor, noise: Tensor | None) -> Tensor:
        """Actions (..., size), differentiable; without noise the most likely ones."""

    def logprob_entropy(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of actions and entropy, both (...)."""

    def as_numbers(self, actions: Tensor) -> Tensor:
        """Actions as they are stored (...) to numbers (..., size)."""

    def as_stored(self, numbers: Array) -> Array:
        """The inverse of `as_numbers`, of rows (N, size)."""


class DiscreteActions:
    """One of n actions; `unimix` of a uniform distribution is mixed in."""

    def __init__(self, space: DiscreteSpec, unimix: float) -> None:
        self.outputs = self.size = space.n
        self.unimix = unimix

    def draw(self, rows: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.random(rows, dtype=np.float32)

    def sample(self, outputs: Tensor, noise: Tensor | None) -> Tensor:
        return straight_through(mixed_logits(outputs, self.unimix), noise)

    def logprob_entropy(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        logprobs = mixed_logits(outputs, self.unimix)
        return (logprobs * actions).sum(-1), -(logprobs.exp() * logprobs).sum(-1)

    def as_numbers(self, actions: Tensor) -> Tensor:
        return F.one_hot(actions.long(), self.size).to(torch.float32)

    def as_stored(self, numbers: Array) -> Array:
        chosen: Array = numbers.argmax(-1)
        return chosen


class RealActions:
    """Independent normal actions: mean tanh(m), standard deviation 0.9 sigmoid(s + 2) + 0.1."""

    def __init__(self, space: BoxSpec) -> None:
        self.shape = space.shape
        self.size = math.prod(space.shape)
        self.outputs = 2 * self.size

    def draw(self, rows: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.standard_normal((*rows, self.size), dtype=np.float32)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """(mean, standard deviation) of actions, (..., size) each."""
        mean, raw = outputs.chunk(2, dim=-1)
        return torch.tanh(mean), (HIGHEST_STD - LOWEST_STD) * torch.sigmoid(raw + 2.0) + LOWEST_STD

    def sample(self, outputs: Tensor, noise: Tensor | None) -> Tensor:
        mean, std = self.moments(outputs)
        return mean if noise is None else mean + std * noise

    def logprob_entropy(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = self.moments(outputs)
        log_std = std.log()
        logprobs = -0.5 * ((actions - mean) / std).square() - log_std - HALF_LOG_2PI
        return logprobs.sum(-1), (0.5 + HALF_LOG_2PI + log_std).sum(-1)

    def as_numbers(self, actions: Tensor) -> Tensor:
        return actions.to(torch.float32).flatten(-len(self.shape)) if self.shape else actions[..., None]

    def as_stored(self, numbers: Array) -> Array:
        return numbers.reshape(-1, *self.shape)


def action_distribution(space: SpaceSpec, unimix: float) -> ActionDistribution:
    """The distribution that fits an action space."""
    if isinstance(space, DiscreteSpec):
        return DiscreteActions(space, unimix)
    assert isinstance(space, BoxSpec), "refused by supports_world_model"
    return RealActions(space)
