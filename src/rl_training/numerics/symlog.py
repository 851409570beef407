"""Symmetric logarithm, and the bins over which world models predict rewards and values.

Symlog compresses numbers of any size and sign: nearly the identity around 0, logarithmic far from it (Hafner et al.
2023, arXiv:2301.04104).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rl_training.types import Array

LARGEST_EXPONENT = 20.0
"""The outermost bins are symexp(-20) and symexp(20), about 4.9e8."""


def symlog(x: npt.ArrayLike) -> Array:
    """sign(x) log(1 + |x|).

    >>> symlog([-1000.0, 0.0, 10.0]).round(6).tolist()
    [-6.908755, 0.0, 2.397895]
    """
    x = np.asarray(x)
    result: Array = np.sign(x) * np.log1p(np.abs(x))
    return result


def symexp(x: npt.ArrayLike) -> Array:
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`.

    >>> symexp([-2.0, 0.5]).round(6).tolist()
    [-6.389056, 0.648721]
    """
    x = np.asarray(x)
    result: Array = np.sign(x) * np.expm1(np.abs(x))
    return result


def symexp_bins(count: int) -> Array:
    """`count` bins, symexp(linspace(-20, 20, count)), in float64: dense around 0 and exactly antisymmetric.

    One half is computed and mirrored, so that bins[i] == -bins[count - 1 - i] to the last bit and an odd number of bins
    has an exact 0 in the middle.

    >>> symexp_bins(255)[126:130].round(6).tolist()
    [-0.170558, 0.0, 0.170558, 0.370205]
    """
    if count < 2:
        raise ValueError(f"two-hot targets need at least 2 bins, not {count}")
    exponents = np.linspace(-LARGEST_EXPONENT, LARGEST_EXPONENT, count)[: count // 2]
    lower = symexp(exponents)
    middle = np.zeros(count % 2)
    return np.concatenate([lower, middle, -lower[::-1]])
