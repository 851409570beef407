"""Returns and advantages as pure NumPy functions: no buffers, no networks, no state.

Every function works on rows of transitions, (T, N) or (T,): row t is one transition with its reward and the value of
its *true* next observation (`next_values`: of the final observation where an episode was cut off, never of the first
one of the next episode). `terminated` rows have no future, so nothing is bootstrapped there; `ends` marks every row
that is the last of its episode, terminated or truncated, and no sum reaches across it. The end of the arrays is cut
like a truncation: the last row bootstraps from its `next_values`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rl_training.types import Array

Flags = npt.NDArray[np.bool_]


class VTraceOptions(NamedTuple):
    """Discount and truncation levels of V-trace."""

    gamma: float
    """Discount factor per step."""
    gae_lambda: float = 1.0
    """Factor of the trace coefficients c."""
    rho_clip: float = 1.0
    """Upper bound of the ratio in the temporal differences; it decides which policy's values are learnt."""
    c_clip: float = 1.0
    """Upper bound of the ratio in the trace coefficients; at most `rho_clip`."""
    pg_rho_clip: float = 1.0
    """Upper bound of the ratio in the advantages."""


def gae(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    next_values: npt.ArrayLike,
    terminated: npt.ArrayLike,
    ends: npt.ArrayLike,
    *,
    gamma: float,
    gae_lambda: float,
    valid: Array | None = None,
) -> tuple[Array, Array]:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438): (advantages, returns).

    returns = advantages + values, the target of the value function. The dtype is that of the inputs. Rows with `valid`
    False are not transitions (the reset steps of NEXT_STEP environments) and are skipped: the sum continues across them
    as if they were not there, unless they end an episode (a worker was lost there). Their own advantage is 0 and their
    return is their value.

    >>> advantages, returns = gae([1.0, 2.0], [0.5, 1.0], [1.0, 4.0], [False, True], [False, True],
    ...                           gamma=0.9, gae_lambda=0.8)
    >>> advantages.round(6).tolist(), returns.round(6).tolist()
    ([2.12, 1.0], [2.62, 2.0])
    """
    rewards, values, next_values = _floats(rewards, values, next_values)
    terminated, cut = _flags(rewards, terminated, ends)
    advantages = np.where(terminated, rewards, rewards + gamma * next_values) - values
    decay = _decay(cut, gamma * gae_lambda, rewards.dtype)
    if valid is not None:
        skipped = np.logical_not(valid)
        advantages[skipped] = 0
        decay[skipped & ~cut] = 1
    _accumulate(advantages, decay)
    if valid is not None:
        advantages[skipped] = 0
    return advantages, advantages + values


def vtrace(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    next_values: npt.ArrayLike,
    terminated: npt.ArrayLike,
    ends: npt.ArrayLike,
    ratios: npt.ArrayLike,
    options: VTraceOptions,
    valid: Array | None = None,
) -> tuple[Array, Array]:
    """V-trace (Espeholt et al. 2018, arXiv:1802.01561, equation 1): (advantages, targets of the value function).

    `ratios` are pi(a|x) / mu(a|x), of the policy that learns over the one that acted. With rho = min(rho_clip, ratio)
    and c = lambda * min(c_clip, ratio):

        v[t] - V[t] = rho[t] * (r[t] + gamma * V(next) - V[t]) + gamma * c[t] * (v[t + 1] - V[t + 1])
        advantages[t] = min(pg_rho_clip, ratio[t]) * (r[t] + gamma * v(next) - V[t])

    where v(next) is v[t + 1] inside an episode, and V(next) at a truncation or the end of the array. Rows that are not
    `valid` are skipped as in `gae`. Where both policies are the same, the targets are the returns of `gae`.

    >>> options = VTraceOptions(gamma=0.9)
    >>> advantages, targets = vtrace([1.0, 2.0], [0.5, 1.0], [1.0, 4.0], [False, True], [False, True], [0.5, 2.0],
    ...                              options)
    >>> advantages.round(6).tolist(), targets.round(6).tolist()
    ([1.15, 1.0], [1.65, 2.0])
    """
    rewards, values, next_values, ratios = _floats(rewards, values, next_values, ratios)
    terminated, cut = _flags(rewards, terminated, ends)
    bootstrap = np.where(terminated, 0, options.gamma * next_values)
    corrections = np.minimum(ratios, options.rho_clip) * (rewards + bootstrap - values)
    trace = options.gamma * options.gae_lambda * np.minimum(ratios, options.c_clip)
    decay = _decay(cut, trace, rewards.dtype)
    if valid is not None:
        skipped = np.logical_not(valid)
        corrections[skipped] = 0
        decay[skipped & ~cut] = 1
    _accumulate(corrections, decay)  # v[t] - V[t]
    following = np.concatenate([corrections[1:], np.zeros_like(corrections[:1])])
    target = rewards + bootstrap + options.gamma * np.where(cut, 0, following)
    advantages = np.minimum(ratios, options.pg_rho_clip) * (target - values)
    if valid is not None:
        corrections[skipped] = 0
        advantages[skipped] = 0
    return advantages.astype(rewards.dtype, copy=False), (values + corrections).astype(rewards.dtype, copy=False)


def lambda_return(
    rewards: npt.ArrayLike,
    next_values: npt.ArrayLike,
    terminated: npt.ArrayLike,
    ends: npt.ArrayLike,
    *,
    gamma: float | npt.ArrayLike,
    gae_lambda: float,
) -> Array:
    """TD(lambda) targets: G[t] = r[t] + gamma * ((1 - lambda) * V(next) + lambda * G[t + 1]).

    The same numbers as the returns of `gae`, without V of the rows themselves (for imagined rollouts). `gamma` is one
    number, or an array of discounts, one for each row: a world model that predicts how likely an episode goes on gives
    its probability for the next state there.

    >>> live = [False, False]
    >>> lambda_return([1.0, 2.0], [4.0, 6.0], live, live, gamma=0.9, gae_lambda=0.5).round(6).tolist()
    [6.13, 7.4]
    >>> lambda_return([1.0, 2.0], [4.0, 6.0], live, live, gamma=[0.0, 0.9], gae_lambda=0.5).round(6).tolist()
    [1.0, 7.4]
    """
    rewards, next_values = _floats(rewards, next_values)
    terminated, cut = _flags(rewards, terminated, ends)
    cut[-1:] = True
    discounts: Any = gamma if isinstance(gamma, int | float) else np.asarray(gamma, rewards.dtype)
    if not isinstance(discounts, int | float) and discounts.shape != rewards.shape:
        raise ValueError(f"discounts {discounts.shape} must have the rewards' shape {rewards.shape}")
    bootstrap = discounts * np.where(cut, next_values, (1.0 - gae_lambda) * next_values)
    targets = np.where(terminated, rewards, rewards + bootstrap)
    _accumulate(targets, _decay(cut, discounts * gae_lambda, rewards.dtype))
    return targets


def n_step_returns(
    rewards: npt.ArrayLike,
    next_values: npt.ArrayLike,
    terminated: npt.ArrayLike,
    ends: npt.ArrayLike,
    *,
    gamma: float,
    n: int,
) -> Array:
    """n-step returns: n discounted rewards and the bootstrap value; fewer where the episode or the array ends.

    >>> ends = [False, False, False, True]
    >>> n_step_returns([1.0, 2.0, 3.0, 4.0], [10.0] * 4, [False] * 4, ends, gamma=0.9, n=3).round(6).tolist()
    [12.52, 15.23, 14.7, 13.0]
    """
    if n < 1:
        raise ValueError(f"n_step_returns needs n >= 1, not {n}")
    rewards, next_values = _floats(rewards, next_values)
    terminated, cut = _flags(rewards, terminated, ends)
    one_step = np.where(terminated, rewards, rewards + gamma * next_values)
    targets = one_step.copy()
    for _ in range(n - 1):
        # from k-step to (k + 1)-step targets: one more reward in front of the next row's k-step target
        targets[:-1] = np.where(cut[:-1], one_step[:-1], rewards[:-1] + gamma * targets[1:])
    return targets


def n_step_sums(rewards: Array, ends: Flags, *, gamma: float, n: int) -> tuple[Array, Array, Array]:
    """Up to n discounted rewards from each row (T, N) on, none behind an end or the last row.

    Returns (sums, gamma to the number of rewards in each, the time of the last row of each sum): what bootstraps from
    that row's next observation. For values that are only known once they are learnt, as in sequences from replay.

    >>> ends = np.array([[False], [True], [False], [False]])
    >>> sums, discounts, last = n_step_sums(np.float32([[1.0], [2.0], [4.0], [8.0]]), ends, gamma=0.5, n=3)
    >>> sums.ravel().tolist(), discounts.ravel().tolist(), last.ravel().tolist()
    ([2.0, 2.0, 8.0, 8.0], [0.25, 0.5, 0.25, 0.5], [1, 1, 3, 3])
    """
    length = len(rewards)
    sums, discounts = rewards.copy(), np.full_like(rewards, gamma)
    last = np.repeat(np.arange(length)[:, None], rewards.shape[1], axis=1)
    goes_on = ~ends
    for k in range(1, min(n, length)):
        goes_on = goes_on[:-1]  # row t takes the reward of row t + k
        rows = slice(length - k)
        sums[rows] += np.where(goes_on, discounts[rows] * rewards[k:], np.float32(0.0))
        discounts[rows] = np.where(goes_on, discounts[rows] * np.float32(gamma), discounts[rows])
        last[rows] += goes_on
        goes_on = goes_on & ~ends[k:]
    return sums, discounts, last


def discounted_returns(rewards: npt.ArrayLike, ends: npt.ArrayLike, *, gamma: float) -> Array:
    """Monte Carlo rewards-to-go: the discounted sum to the end of the episode or of the array, nothing bootstrapped.

    >>> discounted_returns([1.0, 1.0, 1.0, 1.0], [False, False, True, False], gamma=0.5).tolist()
    [1.75, 1.5, 1.0, 1.0]
    """
    (rewards,) = _floats(rewards)
    _, cut = _flags(rewards, ends, ends)
    returns = rewards.copy()
    _accumulate(returns, _decay(cut, gamma, rewards.dtype))
    return returns


def running_returns(
    rewards: Array, ends: Array, open_returns: Array, *, gamma: float, valid: Array | None = None
) -> tuple[Array, Array]:
    """Discounted sums of the rewards *so far* in each episode, (T, N), and the sums open after the last row.

    A reward normaliser measures these. `open_returns` (N,) are the sums that were open before the first row. A row that
    is not `valid` repeats the sum unchanged.

    >>> ends = np.array([[False], [False], [True]])
    >>> returns, left = running_returns(np.ones((3, 1)), ends, np.zeros(1), gamma=0.5)
    >>> returns[:, 0].tolist(), left.tolist()
    ([1.0, 1.5, 1.75], [0.0])
    """
    fresh = np.concatenate([np.zeros_like(ends[:1]), ends[:-1]])
    returns, decay = rewards.astype(open_returns.dtype), _decay(fresh, gamma, open_returns.dtype)
    if valid is not None:
        skipped = np.logical_not(valid)
        returns[skipped] = 0
        decay[skipped & ~fresh] = 1
    returns[:1] += decay[:1] * open_returns
    _accumulate(returns[::-1], decay[::-1])
    return returns, np.where(ends[-1], 0, returns[-1])


def explained_variance(predictions: npt.ArrayLike, targets: npt.ArrayLike) -> float:
    """1 - Var(targets - predictions) / Var(targets): 1 is perfect, 0 no better than a constant, below 0 worse.

    If the targets are constant the ratio is undefined; then 1 for a constant error and 0 otherwise.

    >>> round(explained_variance([1, 2, 4], [1, 2, 3]), 6)
    0.666667
    """
    targets = np.asarray(targets, np.float64)
    error_variance = float(np.var(targets - np.asarray(predictions, np.float64)))
    target_variance = float(np.var(targets))
    if target_variance == 0.0:
        return float(error_variance == 0.0)
    return 1.0 - error_variance / target_variance


def _floats(*arrays: npt.ArrayLike) -> tuple[Array, ...]:
    """The arrays in their common floating dtype, refusing shapes that would broadcast into each other."""
    converted = [np.asarray(array) for array in arrays]
    if any(array.shape != converted[0].shape for array in converted) or converted[0].ndim == 0:
        raise ValueError(
            f"rows of transitions must have one shape (T, ...), not {[array.shape for array in converted]}"
        )
    dtype = np.result_type(*converted)
    if dtype.kind != "f":
        dtype = np.dtype(np.float64)
    return tuple(array.astype(dtype, copy=False) for array in converted)


def _flags(rewards: Array, terminated: npt.ArrayLike, ends: npt.ArrayLike) -> tuple[Flags, Flags]:
    """(terminated, cut): the chain is cut at every end of an episode, including rows with only `terminated` set."""
    flags, last = np.asarray(terminated, np.bool_), np.asarray(ends, np.bool_)
    if flags.shape != rewards.shape or last.shape != rewards.shape:
        raise ValueError(f"terminated {flags.shape} and ends {last.shape} must have the rewards' shape {rewards.shape}")
    return flags, np.logical_or(flags, last)


def _decay(cut: Flags, factor: float | Array, dtype: np.dtype[Any]) -> Array:
    """Factor of the neighbouring row's sum in each row: 0 at a cut, `factor` elsewhere."""
    decay: Array = np.where(cut, dtype.type(0), np.asarray(factor, dtype))
    return decay


def _accumulate(sums: Array, decay: npt.NDArray[Any]) -> None:
    """In place, backwards in time: sums[t] += decay[t] * sums[t + 1]. Rows are views, so the loop allocates nothing."""
    rows, decays = sums.reshape(len(sums), -1), decay.reshape(len(sums), -1)
    if len(rows) < 2:
        return
    scratch = np.empty_like(rows[0])
    following = rows[-1]
    for row, factor in zip(rows[-2::-1], decays[-2::-1], strict=True):
        np.multiply(factor, following, out=scratch)
        np.add(row, scratch, out=row)
        following = row
