"""Optimisers as pure functions: Adam with the arithmetic of the torch twin, or any optax transformation by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.hparams.optimizer import ADAM, LAPROP, OptimizerConfig
from rl_training.jax.models.laprop import LAST_STEP, LaPropState, laprop, laprop_init
from rl_training.jax.types import Hyper
from rl_training.registry import OPTAX_NAMES, check_call, check_kwargs, optimizers
from rl_training.types import ConfigError

BETA1, BETA2 = 0.9, 0.999
OptimizerState = Any
"""A pytree: `AdamState`, or the state of an optax transformation."""


class AdamState(NamedTuple):
    """Steps taken and the two moments, each with the structure of the parameters."""

    steps: Any
    mean: Any
    square: Any


def adam_init(params: Any) -> AdamState:
    """No steps taken; on the host, in NumPy."""
    return AdamState(np.int32(0), jax.tree.map(np.zeros_like, params), jax.tree.map(np.zeros_like, params))


def adam(params: Any, grads: Any, state: AdamState, *, learning_rate: Any, eps: Any) -> tuple[Any, AdamState]:
    """One step of Adam (Kingma and Ba 2015, arXiv:1412.6980): (parameters, moments)."""
    steps = state.steps + (state.steps < LAST_STEP)  # beyond it 1 - beta^t is 1, whatever t
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
    """Gradients scaled down to `max_norm` where their `norm` is larger."""
    scale = jnp.minimum(max_norm / (norm + 1e-6), 1.0)
    return jax.tree.map(lambda g: g * scale, grads)


class Optimizer(NamedTuple):
    """An update rule as two functions."""

    init: Callable[[Any], OptimizerState]
    """Parameters -> the first state, on the host in NumPy."""
    update: Callable[[Any, Any, OptimizerState, Hyper, Any], tuple[Any, OptimizerState]]
    """(parameters, gradients, state, hyperparameters, learning rate) -> parameters, state."""


def adam_update(
    params: Any, grads: Any, state: AdamState, hyper: Hyper, learning_rate: Any
) -> tuple[Any, OptimizerState]:
    return adam(params, grads, state, learning_rate=learning_rate, eps=hyper["adam_eps"])


ADAM_OPTIMIZER = Optimizer(adam_init, adam_update)


def laprop_optimizer(
    agc: float | None = 0.3, eps: float = 1e-20, betas: tuple[float, float] | list[float] = (0.9, 0.999)
) -> Optimizer:
    """LaProp with adaptive gradient clipping; the arguments are `hparams.optimizer.kwargs`."""

    def update(
        params: Any, grads: Any, state: LaPropState, hyper: Hyper, learning_rate: Any
    ) -> tuple[Any, OptimizerState]:
        decay = (float(betas[0]), float(betas[1]))
        return laprop(params, grads, state, learning_rate=learning_rate, agc=agc, eps=eps, betas=decay)

    return Optimizer(laprop_init, update)


def build_optimizer(cfg: OptimizerConfig) -> Optimizer:
    """The optimiser that a config names."""
    if cfg.type == ADAM:
        return ADAM_OPTIMIZER
    if cfg.type == LAPROP:
        check_kwargs(laprop_optimizer, cfg.kwargs, "optimizer 'laprop'", "hparams.optimizer.kwargs")
        return laprop_optimizer(**cfg.kwargs)
    what, kwargs = f"optimizer '{cfg.type}'", dict(cfg.kwargs)
    creator = _creator(cfg.type)
    if "learning_rate" in kwargs:
        raise ConfigError("hparams.optimizer.kwargs.learning_rate: set hparams.learning_rate instead")
    check_call(creator, what, {"learning_rate": 0.0}, kwargs)

    def init(params: Any) -> OptimizerState:
        try:
            state = _transformation(creator(0.0, **kwargs), what).init(params)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{what} does not take hparams.optimizer.kwargs: {error}") from error
        return jax.tree.map(np.asarray, state)

    def update(
        params: Any, grads: Any, state: OptimizerState, hyper: Hyper, learning_rate: Any
    ) -> tuple[Any, OptimizerState]:
        # made anew around the traced learning rate: the state does not depend on it
        changes, state = creator(learning_rate, **kwargs).update(grads, state, params)
        return jax.tree.map(lambda p, change: p + change, params, changes), state

    return Optimizer(init, update)


def _creator(name: str) -> Callable[..., Any]:
    if name not in OPTAX_NAMES:
        creator: Callable[..., Any] = optimizers.get(name)
        return creator
    try:
        import optax
    except ImportError as error:
        raise ConfigError(
            f"optimizer '{name}' with backend: jax needs optax; pip install 'rl-training[jax]', or take adam"
        ) from error
    built_in: Callable[..., Any] = getattr(optax, name)
    return built_in


def _transformation(made: Any, what: str) -> Any:
    if not (callable(getattr(made, "init", None)) and callable(getattr(made, "update", None))):
        raise ConfigError(f"{what} made a {type(made).__name__}; it must be an optax.GradientTransformation")
    return made


def optimizer_step(
    params: Any,
    grads: Any,
    state: OptimizerState,
    hyper: Hyper,
    learning_rate: Any,
    optimizer: Optimizer = ADAM_OPTIMIZER,
) -> tuple[Any, OptimizerState, Any]:
    """Clip to `max_grad_norm`, if there is one, and step; also the gradient norm before clipping."""
    norm = global_norm(grads)
    if "max_grad_norm" in hyper:
        grads = clipped(grads, norm, hyper["max_grad_norm"])
    params, state = optimizer.update(params, grads, state, hyper, learning_rate)
    return params, state, norm
