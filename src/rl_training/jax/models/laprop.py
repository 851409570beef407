"""LaProp with adaptive gradient clipping in JAX: the twin of `rl_training.models.laprop`, as functions on pytrees."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LAST_STEP = np.iinfo(np.int32).max
"""The count of steps stops here."""
SMALLEST_NORM = 1e-3
"""Norm of a tensor below which clipping takes this instead."""


class LaPropState(NamedTuple):
    """Steps taken, mean squares and momentum, each with the structure of the parameters."""

    steps: Any
    square: Any
    momentum: Any


def laprop_init(params: Any) -> LaPropState:
    """No steps taken; on the host, in NumPy."""
    return LaPropState(np.int32(0), jax.tree.map(np.zeros_like, params), jax.tree.map(np.zeros_like, params))


def clip_each(params: Any, grads: Any, ratio: Any) -> Any:
    """The gradient of each tensor scaled down to `ratio` times the norm of the tensor."""

    def clipped(parameter: Any, grad: Any) -> Any:
        limit = ratio * jnp.maximum(jnp.linalg.norm(parameter.ravel()), SMALLEST_NORM)
        return grad / jnp.maximum(jnp.linalg.norm(grad.ravel()) / limit, 1.0)

    return jax.tree.map(clipped, params, grads)


def laprop(
    params: Any,
    grads: Any,
    state: LaPropState,
    *,
    learning_rate: Any,
    agc: Any = 0.3,
    eps: float = 1e-20,
    betas: tuple[float, float] = (0.9, 0.999),
) -> tuple[Any, LaPropState]:
    """One step of LaProp (Ziyin et al. 2020, arXiv:2002.04839): (parameters, moments). `agc` None does not clip."""
    beta1, beta2 = betas
    grads = grads if agc is None else clip_each(params, grads, agc)
    steps = state.steps + (state.steps < LAST_STEP)
    count = steps.astype(jnp.float32)
    # 1 - beta^t by expm1: in float32 the plain form is off by 1e-4 at the first steps
    correction1, correction2 = -jnp.expm1(count * np.log(beta1)), -jnp.expm1(count * np.log(beta2))
    square = jax.tree.map(lambda v, g: beta2 * v + (1.0 - beta2) * g * g, state.square, grads)
    normed = jax.tree.map(lambda v, g: g / (jnp.sqrt(v / correction2) + eps), square, grads)
    momentum = jax.tree.map(lambda m, g: m + (1.0 - beta1) * (g - m), state.momentum, normed)
    params = jax.tree.map(lambda p, m: p - (learning_rate / correction1) * m, params, momentum)
    return params, LaPropState(steps, square, momentum)
