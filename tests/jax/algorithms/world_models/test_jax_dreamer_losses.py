"""Returns, weights, losses and policies of Dreamer in JAX against numbers worked out by hand; nothing large runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dreamer_cases import box, small_config

from rl_training.build_context import BuildContext
from rl_training.jax.algorithms.off_policy import following
from rl_training.jax.algorithms.world_models.actors import DiscreteActions, RealActions
from rl_training.jax.algorithms.world_models.dreamer import (
    Dreamer,
    actor_losses,
    imagined_returns,
    replayed_returns,
    trajectory_weights,
    value_losses,
)
from rl_training.jax.algorithms.world_models.world_model import (
    Arrivals,
    continue_loss,
    divergence_losses,
    mean_over,
)
from rl_training.jax.dynamics.rssm import RSSM
from rl_training.jax.types import Noise
from rl_training.types import DiscreteSpec


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)[:, None]


REWARDS, VALUES = column(0, 1, 0, 2, 1), column(0.5, 1, 2, 1, 3)


@pytest.mark.parametrize(
    ("discounts", "share", "expected"),
    [
        ((1, 0.9, 0.9, 0.9, 0.9), 0.95, (4.9294937125, 4.5432675, 5.2085, 3.7)),
        ((1, 0.9, 0.0, 0.9, 0.9), 0.95, (1.045, 0.0, 5.2085, 3.7)),
        ((1, 0.9, 0.9, 0.9, 0.9), 0.0, (1.9, 1.8, 2.9, 3.7)),
        ((1, 0.9, 0.9, 0.9, 0.9), 1.0, (5.3173, 4.797, 5.33, 3.7)),
    ],
)
def test_imagined_returns(discounts: tuple[float, ...], share: float, expected: tuple[float, ...]) -> None:
    """The reward and the discount of arriving at a state belong to the return of the state before."""
    found = imagined_returns(REWARDS, column(*discounts), jnp.asarray(VALUES), share)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("terminal", "last", "expected"),
    [
        (None, None, (4.9294937125, 4.5432675, 5.2085, 3.7)),
        (2, 2, (1.045, 0.0, 5.2085, 3.7)),
        (None, 2, (2.584, 1.8, 5.2085, 3.7)),
    ],
)
def test_replayed_returns(terminal: int | None, last: int | None, expected: tuple[float, ...]) -> None:
    """A termination ends a return with 0, a time limit with the bootstrap."""
    flags = [column(*(float(t == at) for t in range(5))) for at in (last, terminal)]
    nothing = np.zeros((5, 1), np.float32)
    steps = Arrivals(nothing, nothing, REWARDS, nothing, *flags, nothing, {})
    found = replayed_returns(steps, jnp.asarray(VALUES), 0.9, 0.95)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)


def test_trajectory_weights_count_the_root() -> None:
    found = trajectory_weights(jnp.asarray(column(0.97, 0.9, 0.9, 0.5, 0.9)))[:, 0]
    np.testing.assert_allclose(found, [0.97, 0.873, 0.7857, 0.39285, 0.353565], atol=1e-7)
    behind = trajectory_weights(jnp.asarray(column(0.0, 0.9, 0.9)))
    assert not behind.any(), "nothing is learnt behind the end of an episode"


def test_continue_loss() -> None:
    found = continue_loss(jnp.full(2, 2.0), jnp.array([0.0, 1.0]), 1.0 - 1.0 / 333.0)
    np.testing.assert_allclose(found, [0.13293401704897861, 2.1269280110429727], atol=1e-6)


@pytest.mark.parametrize(("copies", "expected"), [(1, 1.1), (4, 3.8529020951295196)])
def test_free_nats_are_per_step_and_over_all_latents(copies: int, expected: float) -> None:
    """Two latents of 0.446 + 0.430 nats are below one nat: loss 1.1, gradient exactly 0; eight count in full."""
    peaked, uniform = [0.7, 0.1, 0.1, 0.1], [0.25] * 4
    rssm = RSSM(2, 2, deter=4, hidden=4, stoch=2 * copies, classes=4, blocks=1)

    def loss(beliefs: tuple[Any, Any]) -> Any:
        moves_prior, moves_posterior = divergence_losses(
            rssm, {"logits": jnp.log(beliefs[0])}, {"logits": jnp.log(beliefs[1])}, 1.0
        )
        return 1.0 * moves_prior + 0.1 * moves_posterior

    beliefs = jnp.array([peaked, uniform] * copies), jnp.array([uniform, peaked] * copies)
    total, grads = jax.value_and_grad(loss)(beliefs)
    assert float(total) == pytest.approx(expected, abs=1e-5)
    assert bool(grads[0].any()) is bool(grads[1].any()) is (copies > 1)


def test_the_divergence_of_gaussians() -> None:
    rssm = RSSM(2, 2, stoch=30, latent="gaussian")
    posterior = {"mean": jnp.full(30, 0.5), "std": jnp.full(30, 0.8)}
    found = rssm.divergence(posterior, {"mean": jnp.zeros(30), "std": jnp.ones(30)})
    assert float(found) == pytest.approx(5.044306539426293, abs=1e-5)


def test_free_nats_come_before_the_mean() -> None:
    assert float(mean_over(jnp.maximum(jnp.array([0.2, 3.0]), 1.0), jnp.ones(2))) == 2.0


def test_continuous_policy() -> None:
    actions = RealActions(box(1))
    outputs = jnp.array([[0.3, 0.0]])
    mean, std = actions.moments(outputs)
    logprob, entropy = actions.logprob_entropy(outputs, jnp.array([[0.5]]))
    found = [float(x.squeeze()) for x in (mean, std, entropy, logprob)]
    np.testing.assert_allclose(
        found, [0.2913126124515909, 0.8927173701800941, 1.305453290244865, -0.8327766712871021], atol=1e-6
    )
    in_numpy = actions.sample(np.asarray(outputs), np.array([[2.0]], np.float32))
    np.testing.assert_allclose(in_numpy, [[0.2913126 + 2.0 * 0.8927174]], atol=1e-6)


def test_discrete_policy_mixes_in_a_uniform_one_everywhere() -> None:
    actions = DiscreteActions(DiscreteSpec(4), 0.01)
    outputs, expected = jnp.array([0.0, 1.0, 2.0, -1.0]), [0.0887728756, 0.2370139899, 0.6399751173, 0.0342380172]
    logprobs, entropy = actions.logprob_entropy(jnp.broadcast_to(outputs, (4, 4)), jnp.eye(4))
    np.testing.assert_allclose(jnp.exp(logprobs), expected, atol=1e-6)
    np.testing.assert_allclose(entropy, 0.9573638013923387, atol=1e-6)
    certain, _ = actions.logprob_entropy(jnp.broadcast_to(jnp.array([100.0, 0.0, 0.0, 0.0]), (4, 4)), jnp.eye(4))
    np.testing.assert_allclose(jnp.exp(certain), [0.9925, 0.0025, 0.0025, 0.0025], atol=1e-6)
    draws = actions.sample(np.broadcast_to(np.asarray(outputs), (40_000, 4)), np.random.default_rng(0).random(40_000))
    np.testing.assert_allclose(draws.mean(0), expected, atol=0.01)


def test_the_noise_of_a_decision_is_for_latents_and_for_the_action() -> None:
    """Real actions take standard normal numbers; those of the latents become uniform ones. Discrete ones take uniform
    numbers for both."""
    normal = np.array([[-1.6448536, 0.0, 1.6448536, 0.3]], np.float32)
    real, discrete = (Dreamer(BuildContext(box(2), space), small_config()) for space in (box(1), DiscreteSpec(3)))
    assert (real.noise, discrete.noise) == (Noise("normal", (5,)), Noise("uniform", (5,)))
    for numbers in (np, jnp):
        given = numbers.asarray(np.concatenate([normal, [[0.7]]], axis=1).astype(np.float32))
        latents, action = real.split(given)
        np.testing.assert_allclose(latents, [[0.05, 0.5, 0.95, 0.6179114]], atol=1e-6)
        np.testing.assert_allclose(action, [[0.7]])
        latents, action = discrete.split(given)
        np.testing.assert_allclose(latents, normal)
        np.testing.assert_allclose(action, [0.7])
    assert real.split(None) == (None, None)


def test_actor_loss_follows_the_advantage_alone() -> None:
    def loss(logprobs: Any, advantages: Any) -> Any:
        return actor_losses(logprobs, column(0.5, 0.25), advantages, 0.1).sum()

    given = jnp.asarray(column(-1.0, -2.0)), jnp.asarray(column(3.0, -0.5))
    assert float(loss(*given)) == pytest.approx(2.95 - 1.025)
    by_logprobs, by_advantages = jax.grad(loss, (0, 1))(*given)
    np.testing.assert_allclose(by_logprobs[:, 0], [-3.0, 0.5])
    assert not by_advantages.any()


def test_value_loss_is_the_cross_entropy_of_return_and_slow_value() -> None:
    bins = np.array([-2.0, -1.0, 0.0, 1.0, 2.0], np.float32)
    logprobs, value = jax.nn.log_softmax(jnp.array([0.0, 1.0, 2.0, 0.0, -1.0])), jnp.array(0.25)
    assert float(value_losses(logprobs, value, jnp.array(0.0), bins, 0.0)) == pytest.approx(1.0237440658, abs=1e-6)
    assert float(value_losses(logprobs, value, value, bins, 1.0)) == pytest.approx(2 * 1.0237440658, abs=1e-6)


def test_the_slow_critic_follows_by_a_fiftieth() -> None:
    slow, known = {"w": jnp.zeros(())}, {1: 0.02, 10: 0.1829271931124533, 50: 0.6358303199128832}
    for update in range(1, 51):
        slow = following(slow, {"w": jnp.ones(())}, 0.02)
        if update in known:
            assert float(slow["w"]) == pytest.approx(known[update], abs=1e-6)
