"""Running statistics, and the observation and reward normalisers built on them. Pure NumPy, exact on resume.

The observation normaliser lives in a policy and the reward normaliser in an algorithm: environments, buffers and logs
hold raw data. Only `Algorithm.observe` updates the statistics, between rollouts, so that an action's log-probability is
recomputed with the same statistics that the action was chosen with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from rl_training.numerics.returns import running_returns
from rl_training.types import ACTION_MASK, Array, BoxSpec, CheckpointError, DictSpec, Obs, SpaceSpec, StateDict

T = TypeVar("T")

CLIP = 10.0
EPS = 1e-8
_LONE = "obs"
"""State key of an observation that is not a Dict."""


class Moments(NamedTuple):
    """Mean of some rows, sums of squared deviations from it, and number of rows."""

    mean: Array
    deviations: Array
    num_rows: int


def moments_of(rows: Array) -> Moments:
    """Moments of rows (B, *shape) in float64; zeros without rows."""
    if len(rows) == 0:
        return Moments(np.zeros(rows.shape[1:]), np.zeros(rows.shape[1:]), 0)
    mean = rows.mean(axis=0)
    return Moments(mean, np.square(rows - mean).sum(axis=0), len(rows))


class RunningMeanStd:
    """Mean and variance of all rows ever seen, as if computed over them at once.

    Batches are merged by sums of squared deviations (Chan et al. 1979), in float64: E[x^2] - E[x]^2 would lose every
    digit at a mean of 1e5. The count starts at 0, so the first batch is not diluted by an imaginary sample.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean: Array = np.zeros(shape, np.float64)
        self._deviations: Array = np.zeros(shape, np.float64)
        self.count: int = 0

    @property
    def var(self) -> Array:
        """Population variance; 1 before any data."""
        return self._deviations / self.count if self.count else np.ones_like(self.mean)

    def update(self, batch: npt.ArrayLike) -> None:
        """Add rows (B, *shape) to the statistics."""
        rows = np.asarray(batch, np.float64)
        if rows.shape[1:] != self.mean.shape or rows.ndim == 0:
            raise ValueError(f"statistics of shape {self.mean.shape} need rows (B, *shape), not {rows.shape}")
        self.merge(moments_of(rows))

    def merge(self, batch: Moments) -> None:
        """Add rows that are known by their moments."""
        if batch.num_rows == 0:
            return
        total = self.count + batch.num_rows
        delta = batch.mean - self.mean
        self.mean = np.asarray(self.mean + delta * (batch.num_rows / total))
        grown = batch.deviations + np.square(delta) * (self.count * batch.num_rows / total)
        self._deviations = np.asarray(self._deviations + grown)
        self.count = total

    def affine(self, eps: float = EPS) -> tuple[Array, Array]:
        """(mean, 1 / standard deviation); exactly (0, 1) before any data."""
        if self.count == 0:
            return self.mean, np.ones_like(self.mean)
        return self.mean, np.asarray(1.0 / np.sqrt(self.var + eps))

    def normalize(self, x: npt.ArrayLike, clip: float = CLIP, eps: float = EPS) -> Array:
        """(x - mean) / std within +-clip, in float64. Before any data only the clip applies."""
        mean, inverse_std = self.affine(eps)
        return _standardize(np.asarray(x), mean, inverse_std, clip)

    def state_dict(self) -> StateDict:
        return {"mean": self.mean.copy(), "deviations": self._deviations.copy(), "count": self.count}

    def load_state_dict(self, state: StateDict, /) -> None:
        mean, deviations = (np.array(state[name], np.float64) for name in ("mean", "deviations"))
        if mean.shape != self.mean.shape or deviations.shape != self.mean.shape:
            raise CheckpointError(
                f"saved statistics have shape {mean.shape}, this run needs {self.mean.shape}: "
                "the checkpoint belongs to another observation space"
            )
        # backend jax keeps the mean as two float32, of which this is the low part
        rest = np.asarray(state.get("residual", 0.0), np.float64)
        self.mean, self._deviations, self.count = mean + rest, deviations, int(state["count"])


class ObsNormalizer:
    """Observations to mean 0 and standard deviation 1 per element, within +-clip, as float32.

    Real-valued (float Box) observations only: discrete values, integer images and the action mask pass through
    untouched, and so does everything if it is not `enabled`. Before any data the mean is taken as 0 and the standard
    deviation as 1, so only the clip applies: network inputs are within +-clip from the first step on.
    """

    def __init__(self, space: SpaceSpec, *, enabled: bool = True, clip: float = CLIP) -> None:
        leaves = space.spaces if isinstance(space, DictSpec) else {_LONE: space}
        self.clip = clip
        self._statistics = {
            key: RunningMeanStd(leaf.shape)
            for key, leaf in leaves.items()
            if enabled and isinstance(leaf, BoxSpec) and leaf.dtype.kind == "f" and key != ACTION_MASK
        }
        self._refresh()

    def __call__(self, obs: Obs) -> Obs:
        """Normalised copies of (..., *shape) arrays; leaves that are not normalised are returned without a copy."""
        if not self._affine:
            return obs
        if not isinstance(obs, dict):
            return self._apply(_LONE, obs)
        return {key: self._apply(key, value) if key in self._affine else value for key, value in obs.items()}

    def update(self, obs: Obs, valid: Array | None = None) -> None:
        """Add observations with any leading axes, (T, N, *shape) or (B, *shape); `valid` (T, N) selects rows."""
        self.merge(self.moments(obs, valid))

    def moments(self, obs: Obs, valid: Array | None = None) -> dict[str, Moments]:
        """What `update` adds, by leaf; statistics of observations in several places are merged from these."""
        found = {}
        for key, statistics in self._statistics.items():
            leaf = obs[key] if isinstance(obs, dict) else obs
            rows = leaf.reshape(-1, *statistics.mean.shape)
            found[key] = moments_of(np.asarray(rows if valid is None else rows[valid.reshape(-1)], np.float64))
        return found

    def merge(self, moments: Mapping[str, Moments]) -> None:
        """Add observations that are known by their moments."""
        for key, statistics in self._statistics.items():
            statistics.merge(moments[key])
        self._refresh()

    def state_dict(self) -> StateDict:
        return {key: statistics.state_dict() for key, statistics in self._statistics.items()}

    def load_state_dict(self, state: StateDict, /) -> None:
        if set(state) != set(self._statistics):
            raise CheckpointError(
                f"saved observation statistics are of {sorted(state)}, this run needs {sorted(self._statistics)}: "
                "the checkpoint belongs to another observation space or to another env.normalize_obs"
            )
        for key, statistics in self._statistics.items():
            statistics.load_state_dict(state[key])
        self._refresh()

    def affine(self) -> dict[str, tuple[Array, Array]]:
        """(mean, 1 / standard deviation) of every leaf that is normalised."""
        return dict(self._affine)

    def _refresh(self) -> None:
        self._affine = {key: statistics.affine() for key, statistics in self._statistics.items()}

    def _apply(self, key: str, value: Array) -> Array:
        mean, inverse_std = self._affine[key]
        return _standardize(value, mean, inverse_std, self.clip).astype(np.float32)


class RewardNormalizer:
    """Rewards divided by the running standard deviation of the discounted return, within +-clip.

    The mean is not subtracted: that would change which policy is best. The running return of an environment
    restarts at 0 after a terminated *or* truncated step. Before any data only the clip applies.
    """

    def __init__(self, gamma: float, num_envs: int, *, clip: float = CLIP) -> None:
        self.gamma = gamma
        self.clip = clip
        self.statistics = RunningMeanStd()
        self.open_returns: Array = np.zeros(num_envs, np.float64)

    def update(self, rewards: npt.ArrayLike, ends: npt.ArrayLike, valid: Array | None = None) -> Array:
        """Add raw rewards (T, N) in order; returns the running returns (T, N) that were added to the statistics."""
        rewards, ends = np.asarray(rewards, np.float64), np.asarray(ends, np.bool_)
        if rewards.shape[1:] != self.open_returns.shape or ends.shape != rewards.shape:
            raise ValueError(
                f"rewards {rewards.shape} and ends {ends.shape} must both be (T, N) with N = {len(self.open_returns)}"
            )
        returns, self.open_returns = running_returns(rewards, ends, self.open_returns, gamma=self.gamma, valid=valid)
        self.statistics.update(returns.reshape(-1) if valid is None else returns[valid])
        return returns

    def drop_open_episodes(self) -> None:
        """Reset the running returns of episodes that are dropped without having ended."""
        self.open_returns = np.zeros_like(self.open_returns)

    def scale(self, rewards: npt.ArrayLike) -> Array:
        """Normalised rewards of any shape; float32 stays float32, anything else becomes float64."""
        rewards = np.asarray(rewards)
        _, inverse_std = self.statistics.affine()
        dtype = rewards.dtype if rewards.dtype.kind == "f" else np.float64
        return _standardize(rewards, np.zeros(()), inverse_std, self.clip).astype(dtype)

    def state_dict(self) -> StateDict:
        return {"statistics": self.statistics.state_dict(), "open_returns": self.open_returns.copy()}

    def load_state_dict(self, state: StateDict, /) -> None:
        open_returns = np.array(state["open_returns"], np.float64)
        if open_returns.shape != self.open_returns.shape:
            raise CheckpointError(
                f"saved reward statistics follow {open_returns.size} environments, this run has "
                f"{self.open_returns.size}: resume with the same env.num_envs"
            )
        self.statistics.load_state_dict(state["statistics"])
        self.open_returns = open_returns


def _standardize(x: npt.NDArray[Any], mean: Array, inverse_std: Array, clip: float) -> Array:
    # maximum and minimum in place: np.clip costs twice as much on the few numbers of one acting step
    scaled = np.asarray((x - mean) * inverse_std)
    np.maximum(scaled, -clip, out=scaled)
    np.minimum(scaled, clip, out=scaled)
    return scaled


def normalized(advantages: T) -> T:
    """Mean 0 and unbiased standard deviation 1, for torch and JAX arrays alike; a single value passes unchanged."""
    values: Any = advantages
    if math.prod(values.shape) < 2:
        return advantages
    return standardized(advantages, values.mean(), values.std(correction=1))


def standardized(advantages: T, mean: Any, std: Any) -> T:
    """`normalized`, for rows that are a part of those whose mean and standard deviation are given."""
    values: Any = advantages
    result: T = (values - mean) / (std + 1e-8)
    return result
