"""The RSSM in JAX against its torch twin: the same initial numbers, states, losses and gradients with given noise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from rl_training.dynamics import rssm as torch_rssm
from rl_training.dynamics.base import detached
from rl_training.jax.dynamics.latents import mixed_logits, sampled_class, straight_through
from rl_training.jax.dynamics.rssm import RSSM, bounded_actions, gated
from rl_training.types import Array

T, B, TOKENS, ACTIONS = 4, 3, 6, 2
SIZES: dict[str, Any] = {"deter": 16, "hidden": 8, "stoch": 4, "classes": 3, "blocks": 4}
TOLERANCE = 1e-5


def as_torch_names(params: dict[str, Any]) -> dict[str, Array]:
    """JAX parameters in the layout of torch: matrices of linear layers are transposed."""
    transposed = ("linear.weight", "output.weight")
    return {
        name: np.asarray(value).T if name.endswith(transposed) else np.asarray(value) for name, value in params.items()
    }


def data() -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(3)
    is_first = np.zeros((T, B), np.float32)
    is_first[0, 0] = is_first[2, 1] = 1.0
    actions = rng.uniform(-1.5, 1.5, (T, B, ACTIONS)).astype(np.float32)
    tokens, noise = rng.standard_normal((T, B, TOKENS), np.float32), rng.random((T, B, SIZES["stoch"]), np.float32)
    return actions, tokens, is_first, noise


@pytest.fixture(params=["categorical", "gaussian"])
def latent(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_initial_parameters_are_those_of_torch(latent: Any) -> None:
    twin = torch_rssm.RSSM(TOKENS, ACTIONS, np.random.default_rng(0), latent=latent, **SIZES)
    params = as_torch_names(RSSM(TOKENS, ACTIONS, latent=latent, **SIZES).init(np.random.default_rng(0)))
    assert params.keys() == dict(twin.named_parameters()).keys()
    for name, parameter in twin.named_parameters():
        np.testing.assert_array_equal(params[name], parameter.detach().numpy())


def test_losses_and_gradients_are_those_of_torch(latent: Any) -> None:
    rng = np.random.default_rng(1)
    actions, tokens, is_first, noise = data()
    twin = torch_rssm.RSSM(TOKENS, ACTIONS, np.random.default_rng(0), latent=latent, **SIZES)
    rssm = RSSM(TOKENS, ACTIONS, latent=latent, **SIZES)
    carry = {
        "deter": rng.standard_normal((B, SIZES["deter"]), np.float32),
        "stoch": rng.standard_normal((B, rssm.latent_size), np.float32),
    }
    weights = rng.standard_normal((T, B, rssm.features), np.float32)

    def loss(params: Any) -> tuple[Any, tuple[Any, Any]]:
        observed = rssm.observe(params, carry, actions, tokens, is_first, noise)
        still = jax.lax.stop_gradient(observed.posterior), jax.lax.stop_gradient(observed.prior)
        dynamics = rssm.divergence(still[0], observed.prior)
        representation = rssm.divergence(observed.posterior, still[1])
        total = dynamics.sum() + 0.1 * representation.sum() + (weights * rssm.read(observed.states)).sum()
        return total, (rssm.read(observed.states), dynamics)

    start = rssm.init(np.random.default_rng(0))
    (total, (features, divergence)), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(start)

    given = [torch.from_numpy(value) for value in (actions, tokens, is_first, noise)]
    observed = twin.observe({name: torch.from_numpy(value) for name, value in carry.items()}, *given)
    expected = twin.divergence(detached(observed.posterior), observed.prior)
    representation = twin.divergence(observed.posterior, detached(observed.prior))
    read = twin.read(observed.states)
    torch_total = expected.sum() + 0.1 * representation.sum() + (torch.from_numpy(weights) * read).sum()
    torch_total.backward()

    np.testing.assert_allclose(features, read.detach(), atol=TOLERANCE)
    np.testing.assert_allclose(divergence, expected.detach(), atol=TOLERANCE)
    assert float(total) == pytest.approx(torch_total.item(), rel=TOLERANCE)
    named = as_torch_names(grads)
    for name, parameter in twin.named_parameters():
        assert parameter.grad is not None
        limit = TOLERANCE * max(float(parameter.grad.abs().max()), 1e-3)
        np.testing.assert_allclose(named[name], parameter.grad, rtol=0, atol=limit, err_msg=name)


def test_predictions_are_those_of_torch(latent: Any) -> None:
    actions, _, _, noise = data()
    twin = torch_rssm.RSSM(TOKENS, ACTIONS, np.random.default_rng(0), latent=latent, **SIZES)
    rssm = RSSM(TOKENS, ACTIONS, latent=latent, **SIZES)
    params = rssm.init(np.random.default_rng(0))
    state, other = rssm.initial(B), twin.initial(B)
    for t in range(T):
        state = rssm.predict(params, state, jnp.asarray(actions[t]), jnp.asarray(noise[t]))
        other = twin.predict(other, torch.from_numpy(actions[t]), torch.from_numpy(noise[t]))
    np.testing.assert_allclose(rssm.read(state), twin.read(other).detach(), atol=TOLERANCE)
    for name, value in twin.stored(other).items():
        np.testing.assert_allclose(rssm.stored(state)[name], value.detach(), atol=TOLERANCE)
    again = rssm.restored(rssm.stored(state))
    np.testing.assert_allclose(again["stoch"], state["stoch"], atol=1e-6)


def test_where_an_episode_starts_nothing_before_counts() -> None:
    actions, tokens, _, noise = data()
    rssm = RSSM(TOKENS, ACTIONS, **SIZES)
    params = rssm.init(np.random.default_rng(0))
    carry = {name: value + 3.0 for name, value in rssm.initial(B).items()}
    fresh = rssm.correct(params, carry, actions[0], tokens[0], np.ones(B, np.float32), noise[0])
    zero = rssm.correct(params, rssm.initial(B), 0.0 * actions[0], tokens[0], np.zeros(B, np.float32), noise[0])
    np.testing.assert_array_equal(rssm.read(fresh), rssm.read(zero))


def test_the_gate_and_the_bound_of_actions() -> None:
    for numbers in (np, jnp):
        gate = gated(*(numbers.asarray(value, np.float32) for value in (0.0, 1.0, 0.0, 0.5)))
        assert float(gate) == pytest.approx(0.489811734427971, abs=1e-6)
        bounded = bounded_actions(numbers.asarray([-3.0, -1.0, 0.5, 1.7], np.float32))
        np.testing.assert_allclose(bounded, [-1.0, -1.0, 0.5, 1.0])


def test_probabilities_samples_and_straight_through_gradients() -> None:
    logits = jnp.array([0.0, 1.0, 2.0, -1.0])
    expected = [0.0887728756, 0.2370139899, 0.6399751173, 0.0342380172]
    np.testing.assert_allclose(jnp.exp(mixed_logits(logits, 0.01)), expected, atol=1e-6)
    probs = jnp.broadcast_to(jnp.array([0.1, 0.2, 0.3, 0.4]), (4, 4))
    assert sampled_class(probs, jnp.array([0.05, 0.1, 0.35, 0.95])).tolist() == [0, 0, 2, 3]
    weights = jnp.array([1.0, 2.0, 3.0, 4.0])
    grad = jax.grad(lambda x: (straight_through(mixed_logits(x, 0.01), jnp.array(0.5)) * weights).sum())(logits)
    np.testing.assert_allclose(grad, [-0.1398386, -0.1456067, 0.241675, 0.0437703], atol=1e-6)
