"""Ratings and draws of a league: Elo, priorities of opponents, and the Wilson interval of a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rl_training.types import Array

ELO_START = 1000.0
ELO_STEP = 16.0
"""Points that one game can move (Elo's K)."""
LEAST_PRIORITY = 0.01
"""Of an opponent that is always beaten: it is still met now and then, or nobody would see it forgotten."""


def expected_score(own: float, other: float) -> float:
    """Elo's expectation of wins + draws / 2 against a player of rating `other`.

    >>> round(expected_score(1200, 1000), 3)
    0.76
    """
    return float(1.0 / (1.0 + 10.0 ** ((other - own) / 400.0)))


def elo_change(own: float, other: float, score: float, step: float = ELO_STEP) -> float:
    """Points that a player gains, and its opponent loses, by a game of this score (1, 1/2 or 0).

    >>> elo_change(1000, 1000, 1.0)
    8.0
    """
    return step * (score - expected_score(own, other))


def draw_chances(scores: Sequence[float], exponent: float) -> Array:
    """Probabilities of opponents, proportional to (1 - score)^exponent of the learner's score against each.

    >>> draw_chances([0.5, 0.9], 2.0).round(3).tolist()
    [0.962, 0.038]
    """
    weights: Array = np.maximum((1.0 - np.asarray(scores, np.float64)) ** exponent, LEAST_PRIORITY)
    chances: Array = weights / weights.sum()
    return chances


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Bounds of a rate, by default with 95 % confidence; they stay inside 0..1 where a rate is 0 or 1.

    >>> [round(bound, 4) for bound in wilson_interval(0, 1000)]
    [0.0, 0.0038]
    """
    if trials == 0:
        return 0.0, 1.0
    rate, share = successes / trials, z * z / trials
    middle = (rate + share / 2) / (1 + share)
    half = z / (1 + share) * math.sqrt(rate * (1 - rate) / trials + share / (4 * trials))
    return max(0.0, middle - half), min(1.0, middle + half)
