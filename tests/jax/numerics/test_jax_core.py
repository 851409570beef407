"""The pure functions below the algorithms: returns, permutations, statistics, schedules, distributions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.hparams.ppo import PPOConfig
from rl_training.hparams.schedules import Schedule, value_at
from rl_training.jax.models.distributions import Parameters, distribution, draw, draw_numpy, renewed
from rl_training.jax.numerics.normalization import RewardStatistics, empty, merged, scaled_rewards
from rl_training.jax.numerics.permutation import largest_divisor, permutations
from rl_training.jax.numerics.returns import explained_variance, gae, running_returns
from rl_training.jax.traced_hparams import hyper_leaves, scheduled
from rl_training.numerics import returns as reference
from rl_training.numerics.gsde import first_draws
from rl_training.numerics.normalization import RewardNormalizer
from rl_training.types import BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

ORDERS = jax.jit(permutations, static_argnums=(1, 2))
"""One program each, as in a run: compiling operation by operation takes three times as long."""
BOX = BoxSpec(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32), np.dtype(np.float32))


def test_gae_agrees_with_the_numpy_twin_on_1000_random_cases() -> None:
    rng = np.random.default_rng(0)
    shape = (13, 1000)
    rewards, values, next_values = rng.standard_normal((3, *shape)).astype(np.float32)
    terminated, truncated = rng.random((2, *shape)) < 0.15
    ends = terminated | truncated
    expected = reference.gae(rewards, values, next_values, terminated, ends, gamma=0.97, gae_lambda=0.9)
    actual = jax.jit(gae)(rewards, values, next_values, terminated, ends, gamma=0.97, gae_lambda=0.9)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_gae_of_the_worked_example() -> None:
    """A truncated step bootstraps from its final observation, a terminated one from nothing."""
    rewards, values = np.array([[1.0], [2.0], [3.0]]), np.array([[0.5], [1.0], [1.5]])
    next_values, cut = np.array([[1.0], [4.0], [2.0]]), np.array([[False], [True], [False]])
    truncated, _ = jax.jit(gae)(rewards, values, next_values, np.zeros_like(cut), cut, gamma=0.9, gae_lambda=0.8)
    terminated, _ = jax.jit(gae)(rewards, values, next_values, cut, cut, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(truncated[:, 0], [4.712, 4.6, 3.3], rtol=1e-6)
    np.testing.assert_allclose(terminated[:, 0], [2.12, 1.0, 3.3], rtol=1e-6)


def test_running_returns_go_on_across_rollouts_and_start_anew_after_an_end() -> None:
    ends = np.array([[False], [False], [True], [False]])
    run = jax.jit(running_returns)
    first, left = run(np.ones((4, 1), np.float32), ends, np.zeros(1, np.float32), gamma=0.5)
    assert first[:, 0].tolist() == [1.0, 1.5, 1.75, 1.0]
    second, _ = run(np.ones((4, 1), np.float32), ends, left, gamma=0.5)
    assert second[:2, 0].tolist() == [1.5, 1.75]


def test_explained_variance() -> None:
    explained = jax.jit(explained_variance)
    assert float(explained(np.float32([1, 2, 4]), np.float32([1, 2, 3]))) == pytest.approx(2 / 3)
    assert float(explained(np.float32([1, 1]), np.float32([2, 2]))) == 1.0
    assert float(explained(np.float32([1, 3]), np.float32([2, 2]))) == 0.0


@pytest.mark.parametrize("size", [512, 2048, 96, 6, 1, 13])
def test_permutations_are_permutations(size: int) -> None:
    orders = np.asarray(ORDERS(jax.random.key(3), 5, size))
    assert (np.sort(orders, axis=1) == np.arange(size)).all()


def test_permutations_are_uniform_enough() -> None:
    """Every index comes to every place about equally often, and neighbours are separated."""
    assert largest_divisor(64) == 8
    orders = np.asarray(ORDERS(jax.random.key(0), 20_000, 64))
    counts = np.stack([np.bincount(orders[:, place], minlength=64) for place in range(64)])
    assert np.abs(counts / (20_000 / 64) - 1.0).max() < 0.3  # five standard deviations
    adjacent = (np.abs(np.diff(orders, axis=1)) == 1).mean()
    assert adjacent == pytest.approx(2 / 64, rel=0.1)


def test_statistics_of_numbers_far_from_zero() -> None:
    rows = (1e5 + np.random.default_rng(0).standard_normal(60_000)).astype(np.float32)
    statistics = empty()
    for part in np.split(rows, 60):
        statistics = jax.jit(merged)(statistics, part)
    exact = rows.astype(np.float64)
    assert int(statistics.count) == 60_000
    assert float(statistics.mean) + float(statistics.residual) == pytest.approx(exact.mean(), abs=1e-4)
    assert float(statistics.deviations) / 60_000 == pytest.approx(exact.var(), rel=1e-5)


def test_rewards_are_scaled_as_in_the_numpy_twin() -> None:
    rng = np.random.default_rng(1)
    twin, state = RewardNormalizer(0.9, 3), RewardStatistics(empty(), np.zeros(3, np.float32))
    for _ in range(4):
        rewards = rng.normal(3.0, 2.0, (16, 3)).astype(np.float32)
        ends = rng.random((16, 3)) < 0.2
        twin.update(rewards, ends)
        state, scaled = jax.jit(scaled_rewards)(state, rewards, ends, gamma=0.9)
        np.testing.assert_allclose(scaled, twin.scale(rewards), rtol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "cosine", "exponential"])
def test_schedules_are_leaves_with_the_values_of_the_twin(kind: str) -> None:
    schedule = Schedule(kind, 1e-2, 1e-4)  # type: ignore[arg-type]
    hparams = PPOConfig(learning_rate=schedule)
    hyper = hyper_leaves(hparams, ("learning_rate", "gamma", "clip_vf"), 1000)
    assert set(hyper) == {"total_timesteps", "learning_rate", "gamma"}, "what is null has no leaf"
    for env_steps in (0, 250, 1000, 2000):
        value = float(scheduled(hparams, "learning_rate", hyper, float(env_steps)))
        assert value == pytest.approx(value_at(schedule, env_steps / 1000), rel=1e-5)


@pytest.mark.parametrize(
    "space", [DiscreteSpec(3), MultiDiscreteSpec((2, 3)), MultiBinarySpec(2), BOX], ids=lambda s: type(s).__name__
)
def test_samples_have_the_probabilities_they_are_judged_by(space: object) -> None:
    """The mean of -log p over samples is the entropy, whether NumPy or JAX drew them."""
    actions_of = distribution(space)  # type: ignore[arg-type]
    outputs = np.tile(np.linspace(-0.5, 1.0, actions_of.size, dtype=np.float32), (20_000, 1))
    log_std = np.linspace(-0.5, 0.5, actions_of.size, dtype=np.float32) if actions_of.has_log_std else None
    noises = (
        draw(actions_of.noise, jax.random.key(0), (20_000,)),
        draw_numpy(actions_of.noise, np.random.default_rng(0), 20_000).astype(np.float32),
    )
    for noise in noises:
        actions = actions_of.sample(Parameters(outputs, log_std), noise, None, False)
        judged = Parameters(jnp.asarray(outputs), log_std)
        logprobs, entropy = jax.jit(actions_of.logprob_entropy)(judged, jnp.asarray(actions), None)
        assert -float(logprobs.mean()) == pytest.approx(float(entropy.mean()), abs=0.03)


def test_noise_matrices_have_the_spread_they_are_judged_by() -> None:
    """gSDE: each row has features and a matrix of its own; the mean of -log p over samples is the entropy."""
    actions_of, rng, rows, width = distribution(BOX, use_sde=True), np.random.default_rng(0), 20_000, 5
    features, outputs = rng.standard_normal((rows, width), np.float32), np.ones((rows, actions_of.size), np.float32)
    log_std = rng.uniform(-1.0, 0.5, (width, actions_of.size)).astype(np.float32)
    first = first_draws(rows, width, actions_of.size)
    noise = rng.standard_normal((rows, width, actions_of.size), np.float32)
    draws = renewed(first, np.ones(rows, bool), noise, -1)["draws"]
    parameters = Parameters(outputs, log_std, features)
    actions = actions_of.sample(parameters, draws, None, False)
    logprobs, entropy = actions_of.logprob_entropy(parameters, jnp.asarray(actions), None)
    assert -float(logprobs.mean()) == pytest.approx(float(entropy.mean()), abs=0.03)
    np.testing.assert_array_equal(actions_of.sample(parameters, None, None, True), outputs.reshape(actions.shape))


@pytest.mark.parametrize(
    ("every", "drawn_at"), [(-1, [[0, 5], [0, 3]]), (2, [[0, 2, 4, 5, 7], [0, 2, 3, 5, 7]])], ids=["episode", "two"]
)
def test_noise_matrices_last_until_the_episode_ends_or_so_many_steps(every: int, drawn_at: list[list[int]]) -> None:
    carry = first_draws(2, 3, 1)
    seen: list[list[float]] = [[], []]
    for t in range(8):
        is_first = np.array([t in (0, 5), t in (0, 3)])
        carry = renewed(carry, is_first, np.full((2, 3, 1), float(t), np.float32), every)
        for row, matrix in zip(seen, carry["draws"], strict=True):
            row.append(float(matrix[0, 0]))
    expected = [[float(max(d for d in drawn if d <= t)) for t in range(8)] for drawn in drawn_at]
    assert seen == expected


def test_a_masked_action_is_never_drawn_and_gives_no_nan() -> None:
    actions_of = distribution(DiscreteSpec(3))
    outputs, mask = np.zeros((1000, 3), np.float32), np.tile(np.array([1, 0, 1], np.int8), (1000, 1))
    noise = draw_numpy(actions_of.noise, np.random.default_rng(0), 1000)
    actions = actions_of.sample(Parameters(outputs), noise, mask, False)
    assert set(actions) == {0, 2}
    logprobs, entropy = actions_of.logprob_entropy(Parameters(jnp.asarray(outputs)), jnp.asarray(actions), mask)
    np.testing.assert_allclose(logprobs, np.log(0.5), rtol=1e-5)
    np.testing.assert_allclose(entropy, np.log(2.0), rtol=1e-5)
