"""Planning by sampling action sequences: the cross-entropy method and MPPI, as pure NumPy functions.

Both plan B decisions at once. A plan is a Gaussian over sequences of H actions: `mean` and `std` (B, H, A). `evaluate`
scores candidates (B, K, H, A) as (B, K), higher is better; it may call a network, these functions do not. The standard
normal `noise` (iterations, B, K, H, A) is an argument, so equal inputs give equal plans. A score that is not a number
counts as the worst one: a model that diverges on some candidates must not choose them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rl_training.types import Array

Evaluate = Callable[[Array], Array]
"""Candidates (B, K, H, A) -> their scores (B, K); higher is better."""

VARIANCE_FLOOR = 1e-6
"""Added to the variance of the elites, so that the search never collapses onto one point (PlaNet)."""


class Plan(NamedTuple):
    """A Gaussian over action sequences, (B, H, A) each; what is played is the first action of the mean."""

    mean: Array
    std: Array


def cem(
    evaluate: Evaluate,
    noise: Array,
    *,
    elites: int,
    mean: Array | None = None,
    std: Array | None = None,
    bounds: tuple[float, float] = (-1.0, 1.0),
    momentum: float = 0.0,
) -> Plan:
    """Cross-entropy method: sample, keep the best `elites`, fit a Gaussian to them, repeat (Rubinstein 1997).

    As in PlaNet (Hafner et al. 2019, arXiv:1811.04551): candidates are clipped to the `bounds` before they are scored,
    the fit is to the clipped ones, and the search starts at mean 0 and standard deviation 1 unless `mean` and `std`
    say otherwise (a warm start). The number of iterations and of candidates is that of the `noise`. `momentum` is the
    share of the previous mean and standard deviation that each fit keeps.

    >>> noise = np.random.default_rng(0).standard_normal((10, 1, 500, 1, 2))
    >>> plan = cem(lambda a: -((a - [0.3, -0.7]) ** 2).sum((2, 3)), noise, elites=50)
    >>> plan.mean[0, 0].round(2).tolist()
    [0.3, -0.7]
    """
    mean, std = _start(noise, mean, std)
    _check_elites(elites, noise.shape[2])
    for draws in noise:  # (B, K, H, A)
        candidates = np.clip(mean[:, None] + std[:, None] * draws, *bounds)
        best = _best(candidates, _scores(evaluate, candidates), elites)[0]
        fitted_mean, fitted_std = best.mean(1), np.sqrt(best.var(1) + VARIANCE_FLOOR)
        mean = momentum * mean + (1.0 - momentum) * fitted_mean
        std = momentum * std + (1.0 - momentum) * fitted_std
    return Plan(mean, std)


def mppi(
    evaluate: Evaluate,
    noise: Array,
    *,
    elites: int,
    temperature: float = 0.5,
    mean: Array | None = None,
    given: Array | None = None,
    std_range: tuple[float, float] = (0.05, 2.0),
    bounds: tuple[float, float] = (-1.0, 1.0),
) -> Plan:
    """Model predictive path integral control (Williams et al. 2015) as TD-MPC2 runs it (Hansen et al. 2024).

    Each iteration scores the candidates, keeps the best `elites` and fits mean and standard deviation to them with
    weights softmax(temperature * score). `given` (B, P, H, A) are sequences that compete in every iteration without
    noise, for instance of a learnt policy. The search starts with the largest standard deviation of `std_range`.
    """
    mean, std = _start(noise, mean, np.asarray(std_range[1], noise.dtype))
    extra = 0 if given is None else given.shape[1]
    _check_elites(elites, noise.shape[2] + extra)
    for draws in noise:
        candidates = np.clip(mean[:, None] + std[:, None] * draws, *bounds)
        if given is not None:
            candidates = np.concatenate([candidates, np.clip(given, *bounds)], axis=1)
        best, scores = _best(candidates, _scores(evaluate, candidates), elites)
        weights = _softmax(temperature * scores)[:, :, None, None]  # (B, elites, 1, 1)
        mean = (weights * best).sum(1)
        std = np.clip(np.sqrt((weights * (best - mean[:, None]) ** 2).sum(1)), *std_range)
    return Plan(mean, std)


def shifted(plan: Array, fill: float = 0.0) -> Array:
    """A plan (B, H, A) one step later, for a warm start: the first action is gone, the last one is `fill`.

    >>> shifted(np.array([[[1.0], [2.0], [3.0]]]))[0, :, 0].tolist()
    [2.0, 3.0, 0.0]
    """
    later = np.full_like(plan, fill)
    later[:, :-1] = plan[:, 1:]
    return later


def _plan_shape(noise: Array) -> tuple[int, ...]:
    if noise.ndim != 5:
        raise ValueError(f"planning noise is (iterations, B, candidates, H, A), not {noise.shape}")
    return (noise.shape[1], *noise.shape[3:])


def _start(noise: Array, mean: Array | None, std: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation that the search starts with."""
    shape = _plan_shape(noise)
    start_mean = np.zeros(shape, noise.dtype) if mean is None else np.broadcast_to(mean, shape)
    start_std = np.ones(shape, noise.dtype) if std is None else np.broadcast_to(std, shape)
    return start_mean, start_std


def _check_elites(elites: int, candidates: int) -> None:
    if not 1 <= elites <= candidates:
        raise ValueError(f"planning keeps between 1 and all {candidates} candidates, not {elites}")


def _scores(evaluate: Evaluate, candidates: Array) -> Array:
    """Scores (B, K), with -inf where a score is not a number."""
    scores = np.asarray(evaluate(candidates))
    if scores.shape != candidates.shape[:2]:
        raise ValueError(f"scores of candidates {candidates.shape} must be {candidates.shape[:2]}, not {scores.shape}")
    return np.where(np.isnan(scores), -np.inf, scores)


def _best(candidates: Array, scores: Array, elites: int) -> tuple[Array, Array]:
    """The `elites` best candidates (B, elites, H, A) and their scores (B, elites), in no particular order."""
    index = np.argpartition(-scores, elites - 1, axis=1)[:, :elites]
    return np.take_along_axis(candidates, index[:, :, None, None], 1), np.take_along_axis(scores, index, 1)


def _softmax(scores: Array) -> Array:
    """Weights (B, K); where every score is -inf, all weights are equal."""
    top = scores.max(1, keepdims=True)
    exponents = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = exponents.sum(1, keepdims=True)
    weights: Array = np.where(total > 0.0, exponents / np.where(total > 0.0, total, 1.0), 1.0 / scores.shape[1])
    return weights
