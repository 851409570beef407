"""Deterministic and stochastic dynamics in JAX against torch: the same initial numbers, states, losses, gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from rl_training.dynamics.base import build_dynamics as build_torch
from rl_training.dynamics.base import detached
from rl_training.hparams.dreamer import DreamerConfig
from rl_training.hparams.world_models import DynamicsConfig
from rl_training.jax.dynamics.base import Dynamics
from rl_training.jax.dynamics.build import CONTRACT, build_dynamics
from rl_training.jax.dynamics.rssm import RSSM
from rl_training.jax.pytrees import tree_state
from rl_training.types import Array, ConfigError

T, B, TOKENS, ACTIONS = 4, 3, 6, 2
KWARGS: dict[str, dict[str, Any]] = {
    "deterministic": {"deter": 16, "hidden": 8, "blocks": 4},
    "stochastic": {"stoch": 5, "hidden": 8},
}
TOLERANCE = 1e-5


def hparams(kind: str, **kwargs: Any) -> DreamerConfig:
    return DreamerConfig(size="mini", dynamics=DynamicsConfig(kind, kwargs))


@pytest.fixture(params=list(KWARGS))
def pair(request: pytest.FixtureRequest) -> tuple[Any, Dynamics]:
    """The dynamics in torch and in JAX."""
    kind = request.param
    twin = build_torch(kind, KWARGS[kind], (TOKENS, ACTIONS), np.random.default_rng(0))
    return twin, build_dynamics(hparams(kind, **KWARGS[kind]), TOKENS, ACTIONS)


def data(noise_size: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(3)
    is_first = np.zeros((T, B), np.float32)
    is_first[0, 0] = is_first[2, 1] = 1.0
    actions = rng.uniform(-1.5, 1.5, (T, B, ACTIONS)).astype(np.float32)
    tokens = rng.standard_normal((T, B, TOKENS), np.float32)
    return actions, tokens, is_first, rng.random((T, B, noise_size), np.float32)


def test_initial_parameters_are_those_of_torch(pair: tuple[Any, Dynamics]) -> None:
    twin, dynamics = pair
    params = tree_state(dynamics.init(np.random.default_rng(0)))
    assert params.keys() == dict(twin.named_parameters()).keys()
    for name, parameter in twin.named_parameters():
        np.testing.assert_array_equal(params[name], parameter.detach().numpy())
    for name in ("features", "deter", "blocks", "noise_size", "open_loop", "state_spec"):
        assert getattr(dynamics, name) == getattr(twin, name), name


def test_losses_and_gradients_are_those_of_torch(pair: tuple[Any, Dynamics]) -> None:
    twin, dynamics = pair
    rng, given = np.random.default_rng(1), data(dynamics.noise_size)
    spec = dynamics.state_spec
    carry = {name: rng.standard_normal((B, *shape), np.float32) for name, (shape, _) in spec.items()}
    weights = rng.standard_normal((T, B, dynamics.features), np.float32)

    def loss(params: Any) -> Any:
        observed = dynamics.observe(params, carry, *given)
        dividing = dynamics.divergence(jax.lax.stop_gradient(observed.posterior), observed.prior)
        ahead = dynamics.predict(params, {name: value[-1] for name, value in observed.states.items()}, given[0][0])
        read = dynamics.read(observed.states)
        return dividing.sum() + (weights * read).sum() + dynamics.read(ahead).sum(), read

    start = dynamics.init(np.random.default_rng(0))
    (total, features), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(start)

    tensors = [torch.from_numpy(value) for value in given]
    observed = twin.observe({name: torch.from_numpy(value) for name, value in carry.items()}, *tensors)
    read = twin.read(observed.states)
    ahead = twin.predict({name: value[-1] for name, value in observed.states.items()}, tensors[0][0])
    divergence = twin.divergence(detached(observed.posterior), observed.prior)
    expected = divergence.sum() + (torch.from_numpy(weights) * read).sum() + twin.read(ahead).sum()
    expected.backward()

    np.testing.assert_allclose(features, read.detach(), atol=TOLERANCE)
    assert float(total) == pytest.approx(expected.item(), rel=TOLERANCE)
    named = tree_state(grads)
    for name, parameter in twin.named_parameters():
        limit = TOLERANCE * max(float(parameter.grad.abs().max()), 1e-3)
        np.testing.assert_allclose(named[name], parameter.grad, rtol=0, atol=limit, err_msg=name)


def test_a_start_forgets_what_was_before(pair: tuple[Any, Dynamics]) -> None:
    _, dynamics = pair
    actions, tokens, _, noise = data(dynamics.noise_size)
    params = dynamics.init(np.random.default_rng(0))
    carry = {name: value + 3.0 for name, value in dynamics.initial(B).items()}
    fresh = dynamics.correct(params, carry, actions[0], tokens[0], np.ones(B, np.float32), noise[0])
    zero = dynamics.correct(params, dynamics.initial(B), 0.0 * actions[0], tokens[0], np.zeros(B, np.float32), noise[0])
    np.testing.assert_array_equal(dynamics.read(fresh), dynamics.read(zero))


def test_acting_in_numpy_is_acting_in_jax() -> None:
    dynamics = build_dynamics(hparams("deterministic", **KWARGS["deterministic"]), TOKENS, ACTIONS)
    assert dynamics.in_numpy
    actions, tokens, is_first, _ = data(0)
    params = dynamics.init(np.random.default_rng(0))
    carry = {"deter": np.ones((B, 16), np.float32)}
    by_numpy = dynamics.correct(params, carry, actions[0], tokens[0], is_first[0])["deter"]
    assert isinstance(by_numpy, np.ndarray)
    by_jax = dynamics.correct(params, carry, jnp.asarray(actions[0]), jnp.asarray(tokens[0]), is_first[0])["deter"]
    np.testing.assert_allclose(by_numpy, by_jax, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("kind", "kwargs", "message"),
    [
        ("deterministic", {"open_lop": 3}, "takes no 'open_lop'.*did you mean 'open_loop'"),
        ("deterministic", {"open_loop": 0}, "open_loop must be at least 1, not 0"),
        ("deterministic", {"deter": 10, "blocks": 4}, "deter 10 is not divisible into 4 blocks"),
        ("deterministic", {"hidden": 0}, "hidden must be at least 1, not 0"),
        ("rssm", {"deter": "64"}, "deter must be a whole number, not '64'"),
        ("rssm", {"unimix": "no"}, r"kwargs\.unimix must be at least 0 and less than 1, not 'no'"),
        ("stochastic", {"stoch": 0}, "stoch must be at least 1, not 0"),
        ("ensemble", {}, "with backend: jax dynamics are one of rssm, deterministic, stochastic"),
        ("rsm", {}, "rsm"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_dynamics(hparams(kind, **kwargs), TOKENS, ACTIONS)


class Mine(RSSM):
    """Dynamics of a user: those of the package under another name."""


def test_own_classes_by_dotted_name() -> None:
    assert all(hasattr(Mine, name) for name in CONTRACT)
    made = build_dynamics(hparams(f"{__name__}:Mine", deter=16, blocks=1), TOKENS, ACTIONS)
    assert isinstance(made, Mine)
    assert made.deter == 16
