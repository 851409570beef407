"""Adam (Kingma and Ba 2015, arXiv:1412.6980) as one function, with the arithmetic of the torch twin."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.types import Hyper

BETA1, BETA2 = 0.9, 0.999
LAST_STEP = np.iinfo(np.int32).max
"""Where the count of steps stays."""


class AdamState(NamedTuple):
    steps: Any
    mean: Any
    square: Any


def adam_init(params: Any) -> AdamState:
    """No steps taken; on the host, in NumPy."""
    return AdamState(np.int32(0), jax.tree.map(np.zeros_like, params), jax.tree.map(np.zeros_like, params))


def adam(params: Any, grads: Any, state: AdamState, *, learning_rate: Any, eps: Any) -> tuple[Any, AdamState]:
    """One step: (parameters, moments)."""
    steps = state.steps + (state.steps < LAST_STEP)  # behind it 1 - beta^t is 1, whatever t
    mean = jax.tree.map(lambda m, g: m + (1.0 - BETA1) * (g - m), state.mean, grads)
    square = jax.tree.map(lambda v, g: BETA2 * v + (1.0 - BETA2) * g * g, state.square, grads)
    count = steps.astype(jnp.float32)
    # 1 - beta^t by expm1: in float32 the plain form is off by 1e-4 at the first steps
    step_size = learning_rate / -jnp.expm1(count * np.log(BETA1))
    root = jnp.sqrt(-jnp.expm1(count * np.log(BETA2)))
    params = jax.tree.map(lambda p, m, v: p - step_size * m / (jnp.sqrt(v) / root + eps), params, mean, square)
    return params, AdamState(steps, mean, square)


def global_norm(grads: Any) -> Any:
    """The norm of all gradients together."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(grads)))


def clipped(grads: Any, norm: Any, max_norm: Any) -> Any:
    """Gradients scaled down to `max_norm` where their `norm` is beyond it."""
    scale = jnp.minimum(max_norm / (norm + 1e-6), 1.0)
    return jax.tree.map(lambda g: g * scale, grads)


def optimizer_step(
    params: Any, grads: Any, optimizer: AdamState, hyper: Hyper, learning_rate: Any
) -> tuple[Any, AdamState, Any]:
    """Clip to `max_grad_norm`, if there is one, and step; also the gradient norm before clipping."""
    norm = global_norm(grads)
    if "max_grad_norm" in hyper:
        grads = clipped(grads, norm, hyper["max_grad_norm"])
    params, optimizer = adam(params, grads, optimizer, learning_rate=learning_rate, eps=hyper["adam_eps"])
    return params, optimizer, norm
