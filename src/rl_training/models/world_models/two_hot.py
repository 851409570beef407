"""Two-hot predictions: a number as a distribution over bins, learnt by cross-entropy instead of squared error.

A target between two bins puts its weight on both, so that their mean is the target; the bins need not be evenly spaced.
Large and rare targets then do not dominate the gradient (Hafner et al. 2023, arXiv:2301.04104). Losses and means take
log-probabilities, so that one log-softmax serves them all.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Neighbours(NamedTuple):
    """The two bins around each value, and how much of the weight is the upper one's."""

    lower: Tensor
    upper: Tensor
    share: Tensor


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|)."""
    return torch.sign(x) * torch.log1p(torch.abs(x))


def symexp(x: Tensor) -> Tensor:
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`."""
    return torch.sign(x) * torch.expm1(torch.abs(x))


def neighbours(values: Tensor, bins: Tensor) -> Neighbours:
    """The bins around `values` of any shape; beyond the outermost bins all of the weight is on that bin."""
    inside = values.clamp(bins[0], bins[-1])
    upper = torch.searchsorted(bins, inside.contiguous()).clamp(1, len(bins) - 1)
    lower = upper - 1
    below, above = bins[lower], bins[upper]
    return Neighbours(lower, upper, (inside - below) / (above - below))


def two_hot(values: Tensor, bins: Tensor) -> Tensor:
    """Targets (..., K) of `values` (...) over K increasing `bins`; they sum to 1 and their mean is the value."""
    lower, upper, share = neighbours(values, bins)
    target = torch.zeros(*values.shape, len(bins), dtype=bins.dtype, device=bins.device)
    target.scatter_(-1, lower[..., None], (1.0 - share)[..., None])
    return target.scatter_(-1, upper[..., None], share[..., None])


def two_hot_loss(logprobs: Tensor, values: Tensor, bins: Tensor) -> Tensor:
    """Cross-entropy (...) of predictions (..., K) and the two-hot targets of `values` (...), which get no gradient."""
    lower, upper, share = neighbours(values.detach(), bins)
    below = logprobs.gather(-1, lower[..., None]).squeeze(-1)
    above = logprobs.gather(-1, upper[..., None]).squeeze(-1)
    return -((1.0 - share) * below + share * above)


def two_hot_mean(logprobs: Tensor, bins: Tensor) -> Tensor:
    """Mean (...) of predictions (..., K) over antisymmetric `bins`: bins[i] = -bins[K - 1 - i].

    Summed in mirrored pairs, b (p[+b] - p[-b]): equal probabilities give exactly 0. Summed from left to right in
    float32, 255 equal ones give -0.3, and a new critic would start with that everywhere.
    """
    probs = logprobs.exp()
    half = len(bins) // 2
    positive = probs[..., -half:] - probs[..., :half].flip(-1)
    return positive @ bins[-half:]
