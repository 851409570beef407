"""Returns and advantages in JAX: the twins of `rl_training.numerics.returns`, in float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def gae(
    rewards: Any,
    values: Any,
    next_values: Any,
    terminated: Any,
    ends: Any,
    *,
    gamma: Any,
    gae_lambda: Any,
) -> tuple[Any, Any]:
    """Generalised advantage estimation on (T, N): (advantages, returns); see `rl_training.numerics.returns.gae`."""
    deltas = rewards + gamma * jnp.where(terminated, 0.0, next_values) - values
    advantages = backward_sums(deltas, jnp.where(ends, 0.0, gamma * gae_lambda))
    return advantages, advantages + values


def lambda_return(rewards: Any, next_values: Any, terminated: Any, ends: Any, *, gamma: Any, gae_lambda: Any) -> Any:
    """TD(lambda) targets on (T, N), `gamma` a number or an array of discounts (T, N); see
    `rl_training.numerics.returns.lambda_return`."""
    cut = ends.at[-1].set(True)
    bootstrap = jnp.where(terminated, 0.0, next_values) * jnp.where(cut, 1.0, 1.0 - gae_lambda)
    return backward_sums(rewards + gamma * bootstrap, jnp.where(cut, 0.0, gamma * gae_lambda))


def backward_sums(terms: Any, decay: Any) -> Any:
    """sums[t] = terms[t] + decay[t] * sums[t + 1], as one small loop, which is faster than an associative scan."""

    def step(following: Any, row: tuple[Any, Any]) -> tuple[Any, Any]:
        total = row[0] + row[1] * following
        return total, total

    return jax.lax.scan(step, jnp.zeros_like(terms[0]), (terms, decay), reverse=True)[1]


def running_returns(rewards: Any, ends: Any, open_returns: Any, *, gamma: Any) -> tuple[Any, Any]:
    """Discounted sums of the rewards so far in each episode (T, N), and of those still open at the end (N,)."""
    before = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
    decay = jnp.where(before, 0.0, gamma)
    terms = jnp.asarray(rewards).at[0].add(decay[0] * open_returns)
    returns = backward_sums(terms[::-1], decay[::-1])[::-1]
    return returns, jnp.where(ends[-1], 0.0, returns[-1])


def explained_variance(predictions: Any, targets: Any) -> Any:
    """1 - Var(targets - predictions) / Var(targets); 1 or 0 if the targets are constant, as in the NumPy twin."""
    errors, variance = jnp.var(targets - predictions), jnp.var(targets)
    flat = jnp.where(errors == 0.0, 1.0, 0.0)
    return jnp.where(variance == 0.0, flat, 1.0 - errors / jnp.where(variance == 0.0, 1.0, variance))
