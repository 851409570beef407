"""Running statistics and the observation and reward normalisers, as pure functions on float32 pytrees.

The twins of `rl_training.numerics.normalization`. Compiled code has no float64: the mean is stored as a float32 plus a
float32 residual, so that deviations from a mean of 1e5 are still exact to the last digits of a float32. A float32 sum
stops growing once it is 2^24 times as large as its terms; counts stay below that (`longest_window`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.numerics.returns import running_returns
from rl_training.numerics.normalization import CLIP, EPS
from rl_training.types import ACTION_MASK, BoxSpec, DictSpec, SpaceSpec, StateDict

LONE = "obs"
"""Key of an observation that is not a dict."""


class Statistics(NamedTuple):
    """Mean (`mean + residual`), sum of squared deviations from it, and number of rows (see `longest_window`)."""

    mean: Any
    residual: Any
    deviations: Any
    count: Any


class Scale(NamedTuple):
    """Shift and scale that normalise one observation leaf."""

    mean: Any
    residual: Any
    inverse_std: Any


class RewardStatistics(NamedTuple):
    """Statistics of the discounted returns so far, and the running returns of the open episodes (N,)."""

    statistics: Statistics
    open_returns: Any


def empty(shape: tuple[int, ...] = ()) -> Statistics:
    """Statistics before any data."""
    zeros = np.zeros(shape, np.float32)
    return Statistics(zeros, zeros.copy(), zeros.copy(), np.uint32(0))


def from_either_backend(state: StateDict) -> StateDict:
    """Saved observation statistics of either backend in the format of this one: a float64 mean becomes two float32."""

    def one(leaf: StateDict) -> StateDict:
        if "residual" in leaf:
            return leaf
        mean = np.asarray(leaf["mean"], np.float32)
        return {**leaf, "mean": mean, "residual": np.asarray(leaf["mean"] - mean.astype(np.float64), np.float32)}

    return {key: one(leaf) for key, leaf in state.items()}


def longest_window(rows: int) -> int:
    """Effective window of statistics that receive `rows` rows at a time. Once it is full, the count and the sum of
    squares are scaled down by the same factor, so that mean and variance are those of about this many recent rows.
    Without it the float32 sum would stop growing, and later the count would overflow."""
    return min(rows << 20, 1 << 31)


def merged(statistics: Statistics, rows: Any) -> Statistics:
    """Statistics updated with rows (B, *shape), by merging sums of squared deviations (Chan et al. 1979)."""
    count, longest = len(rows), longest_window(len(rows))
    before = statistics.count.astype(jnp.float32)
    total = before + count
    centred = (rows - statistics.mean) - statistics.residual
    delta = centred.mean(0)
    errors = centred - delta
    within = jnp.square(errors).sum(0) - jnp.square(errors.sum(0)) / count
    step = statistics.residual + delta * (count / total)
    mean = statistics.mean + step
    residual = step - (mean - statistics.mean)
    deviations = statistics.deviations + within + jnp.square(delta) * (before * count / total)
    forgets = statistics.count > np.uint32(longest - count)
    deviations = jnp.where(forgets, deviations * (float(longest) / total), deviations)
    return Statistics(
        mean, residual, deviations, jnp.where(forgets, np.uint32(longest), statistics.count + np.uint32(count))
    )


def inverse_std(statistics: Statistics) -> Any:
    """1 / standard deviation; 1 if there are no data yet."""
    count = statistics.count.astype(jnp.float32)
    variance = statistics.deviations / jnp.maximum(count, 1.0)
    return jnp.where(count == 0.0, 1.0, jax.lax.rsqrt(variance + EPS))


def obs_statistics(space: SpaceSpec) -> dict[str, Statistics]:
    """Empty statistics of every real-valued leaf; images, discrete values and the action mask have none."""
    leaves = space.spaces if isinstance(space, DictSpec) else {LONE: space}
    return {
        key: empty(leaf.shape)
        for key, leaf in leaves.items()
        if isinstance(leaf, BoxSpec) and leaf.dtype.kind == "f" and key != ACTION_MASK
    }


def scales(statistics: dict[str, Statistics]) -> dict[str, Scale]:
    """Shift and scale of every observation leaf under these statistics."""
    return {key: Scale(leaf.mean, leaf.residual, inverse_std(leaf)) for key, leaf in statistics.items()}


def normalized_obs(by_key: dict[str, Scale], obs: Any) -> Any:
    """Observations normalised and clipped to +-CLIP, in NumPy or JAX; leaves without a scale are unchanged."""
    if not by_key:
        return obs

    def one(scale: Scale, value: Any) -> Any:
        scaled = ((value - scale.mean) - scale.residual) * scale.inverse_std
        return (np if isinstance(scaled, np.ndarray) else jnp).clip(scaled, -CLIP, CLIP)

    if not isinstance(obs, dict):
        return one(by_key[LONE], obs)
    return {key: one(by_key[key], value) if key in by_key else value for key, value in obs.items()}


def observed(statistics: dict[str, Statistics], obs: Any) -> dict[str, Statistics]:
    """Statistics updated with the observations (T, N, *shape) of a rollout."""
    by_name = obs if isinstance(obs, dict) else {LONE: obs}
    return {key: merged(leaf, by_name[key].reshape(-1, *leaf.mean.shape)) for key, leaf in statistics.items()}


def scaled_rewards(state: RewardStatistics, rewards: Any, ends: Any, *, gamma: Any) -> tuple[RewardStatistics, Any]:
    """Rewards (T, N) divided by the running standard deviation of the discounted return, which includes their own."""
    returns, open_returns = running_returns(rewards, ends, state.open_returns, gamma=gamma)
    statistics = merged(state.statistics, returns.reshape(-1))
    scaled = jnp.clip(rewards * inverse_std(statistics), -CLIP, CLIP)
    return RewardStatistics(statistics, open_returns), scaled
