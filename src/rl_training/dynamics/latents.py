"""Random parts of a state: diagonal Gaussians and vectors of categoricals, with sampling from uniform noise and KL."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.dynamics.base import Belief, standard_normal
from rl_training.types import ConfigError

MIN_STD = 0.1
"""Smallest standard deviation of a Gaussian latent, as in PlaNet."""


class Latent(Protocol):
    """A family of distributions over the random part of a state."""

    size: int
    """Numbers of a sample."""
    parameters: int
    """Outputs of the network that gives the distribution."""
    noise_size: int
    """Uniform numbers that one sample needs."""

    def belief(self, outputs: Tensor) -> Belief:
        """The distribution that a network's outputs (..., parameters) stand for."""

    def sample(self, belief: Belief, noise: Tensor | None) -> Tensor:
        """A differentiable sample (..., size), or the most likely value without `noise`."""

    def divergence(self, posterior: Belief, prior: Belief) -> Tensor:
        """KL(posterior || prior), summed over the latents: (...)."""


class Gaussian:
    """Independent normal numbers; standard deviations are softplus + 0.1."""

    def __init__(self, size: int) -> None:
        self.size = self.noise_size = size
        self.parameters = 2 * size

    def belief(self, outputs: Tensor) -> Belief:
        mean, raw = outputs.chunk(2, dim=-1)
        return {"mean": mean, "std": F.softplus(raw) + MIN_STD}

    def sample(self, belief: Belief, noise: Tensor | None) -> Tensor:
        if noise is None:
            return belief["mean"]
        return belief["mean"] + belief["std"] * standard_normal(noise)

    def divergence(self, posterior: Belief, prior: Belief) -> Tensor:
        return gaussian_divergence(posterior["mean"], posterior["std"], prior["mean"], prior["std"])


class Categorical:
    """`count` one-hot vectors of `classes`, with straight-through gradients.

    Probabilities are mixed with `unimix` of a uniform distribution, in sampling, KL and log-probabilities alike, so
    that no class is ever impossible. One uniform number per vector is enough: the class is found by the inverse of the
    cumulative distribution.
    """

    def __init__(self, count: int, classes: int, unimix: float) -> None:
        if not 0.0 <= unimix < 1.0:
            raise ConfigError(f"unimix must be at least 0 and less than 1, not {unimix!r}")
        self.count, self.classes, self.unimix = count, classes, unimix
        self.noise_size = count
        self.size = self.parameters = count * classes

    def belief(self, outputs: Tensor) -> Belief:
        return {"logits": mixed_logits(outputs.unflatten(-1, (self.count, self.classes)), self.unimix)}

    def sample(self, belief: Belief, noise: Tensor | None) -> Tensor:
        return straight_through(belief["logits"], noise).flatten(-2)

    def divergence(self, posterior: Belief, prior: Belief) -> Tensor:
        return categorical_divergence(posterior["logits"], prior["logits"])

    def class_numbers(self, sample: Tensor) -> Tensor:
        """One-hot samples (..., size) as the numbers of their classes (..., count), bytes."""
        numbers: Tensor = sample.unflatten(-1, (self.count, self.classes)).argmax(-1)
        return numbers.to(torch.uint8)

    def one_hot(self, numbers: Tensor) -> Tensor:
        """The inverse of `class_numbers`."""
        return F.one_hot(numbers.long(), self.classes).flatten(-2).to(torch.float32)


def gaussian_divergence(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> Tensor:
    """KL(N(mean, std) || N(other)) of diagonal Gaussians, summed over the last axis."""
    ratio = std / other_std
    terms = 0.5 * (ratio.square() + ((mean - other_mean) / other_std).square() - 1.0) - ratio.log()
    return terms.sum(-1)


def mixed_logits(logits: Tensor, unimix: float) -> Tensor:
    """Log-probabilities of (1 - unimix) softmax(logits) + unimix / classes."""
    if unimix == 0.0:
        return F.log_softmax(logits, dim=-1)
    return torch.log((1.0 - unimix) * F.softmax(logits, dim=-1) + unimix / logits.shape[-1])


def sampled_class(probs: Tensor, uniform: Tensor) -> Tensor:
    """Class numbers (...) of probabilities (..., C): how many entries of the cumulative sum are below `uniform`."""
    return (probs[..., :-1].cumsum(-1) < uniform[..., None]).sum(-1)


def straight_through(logprobs: Tensor, uniform: Tensor | None) -> Tensor:
    """One-hot samples (..., C) whose gradient is that of the probabilities; without `uniform` the most likely class."""
    probs = logprobs.exp()
    index = logprobs.argmax(-1) if uniform is None else sampled_class(probs.detach(), uniform)
    one_hot = F.one_hot(index, probs.shape[-1]).to(probs.dtype)
    return one_hot + (probs - probs.detach()) if probs.requires_grad else one_hot


def categorical_divergence(logprobs: Tensor, other: Tensor) -> Tensor:
    """KL of categoricals (..., count, C), given by log-probabilities, summed over `count`: (...)."""
    return (logprobs.exp() * (logprobs - other)).sum((-2, -1))
