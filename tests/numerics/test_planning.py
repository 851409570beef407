"""Planning on functions whose best action is known."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.numerics.planning import cem, mppi, shifted
from rl_training.types import Array

BEST = np.array([0.3, -0.7])


def near_best(candidates: Array) -> Array:
    """-|a - best|^2 of the first action: (B, K)."""
    return -((candidates[:, :, 0] - BEST) ** 2).sum(-1)


def noise(seed: int, iterations: int = 10, candidates: int = 1000, rows: int = 1, horizon: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal((iterations, rows, candidates, horizon, 2))


def test_cem_finds_the_best_action() -> None:
    first = cem(near_best, noise(0, iterations=1), elites=100)
    assert np.abs(first.mean[0, 0] - BEST).max() < 0.05
    errors, spreads = [], []
    for seed in range(40):
        plan = cem(near_best, noise(seed), elites=100)
        errors.append(np.abs(plan.mean[0, 0] - BEST).max())
        spreads.append(plan.std.mean())
    assert np.median(errors) < 6e-5
    assert np.max(errors) < 2e-4
    assert np.mean(spreads) == pytest.approx(1.03e-3, abs=2e-5)  # the floor is sqrt(1e-6)


def test_candidates_are_clipped_before_they_are_scored_and_fitted() -> None:
    seen: list[Array] = []

    def evaluate(candidates: Array) -> Array:
        seen.append(candidates)
        return candidates.sum((2, 3))

    plan = cem(evaluate, noise(0, iterations=3, candidates=50), elites=5, bounds=(-0.5, 0.25))
    assert all(candidates.min() >= -0.5 and candidates.max() <= 0.25 for candidates in seen)
    assert plan.mean.max() <= 0.25
    np.testing.assert_allclose(plan.mean, 0.25, atol=1e-3)


def test_decisions_do_not_influence_each_other() -> None:
    goals = np.array([[0.5, 0.5], [-0.5, 0.1], [0.0, -0.9]])
    draws = noise(1, rows=3)
    together = cem(lambda a: -((a[:, :, 0] - goals[:, None]) ** 2).sum(-1), draws, elites=50)
    for row, goal in enumerate(goals):
        alone = cem(lambda a, goal=goal: -((a[:, :, 0] - goal) ** 2).sum(-1), draws[:, row : row + 1], elites=50)
        np.testing.assert_array_equal(alone.mean[0], together.mean[row])


def test_scores_that_are_not_numbers_never_win() -> None:
    def evaluate(candidates: Array) -> Array:
        scores = near_best(candidates)
        return np.where(candidates[:, :, 0, 0] > 0.0, np.nan, scores)

    plan = cem(evaluate, noise(2), elites=100)
    assert plan.mean[0, 0, 0] <= 0.0
    assert np.isfinite(cem(lambda a: np.full(a.shape[:2], np.nan), noise(2), elites=10).mean).all()
    assert np.isfinite(mppi(lambda a: np.full(a.shape[:2], np.nan), noise(2), elites=10).mean).all()


def test_a_warm_start_and_momentum() -> None:
    near = np.tile(BEST, (1, 1, 1))
    warm = cem(near_best, noise(3, iterations=1, candidates=50), elites=5, mean=near, std=np.full((1, 1, 2), 0.01))
    assert np.abs(warm.mean[0, 0] - BEST).max() < 0.02
    fitted = cem(near_best, noise(4, iterations=1), elites=100)
    slow = cem(near_best, noise(4, iterations=1), elites=100, momentum=0.25)
    np.testing.assert_allclose(slow.mean, 0.75 * fitted.mean)
    np.testing.assert_allclose(slow.std, 0.25 + 0.75 * fitted.std)


def test_mppi_finds_the_best_action_and_keeps_its_spread_in_range() -> None:
    plan = mppi(near_best, noise(5, iterations=10, candidates=512), elites=64, temperature=5.0)
    assert np.abs(plan.mean[0, 0] - BEST).max() < 0.03
    assert plan.std.min() >= 0.05


def test_mppi_weights_its_elites_by_score() -> None:
    actions = np.array([-1.0, 0.0, 0.5])[None, :, None, None]
    plan = mppi(
        lambda a: a[:, :, 0, 0],
        np.zeros((1, 1, 1, 1, 1)),
        elites=2,
        temperature=2.0,
        given=actions,
        std_range=(0.0, 2.0),
    )  # candidates 0, -1, 0, 0.5; the best two are 0.5 and a 0, weights softmax(1, 0)
    weight = np.exp(1.0) / (np.exp(1.0) + 1.0)
    assert plan.mean[0, 0, 0] == pytest.approx(0.5 * weight)
    assert plan.std[0, 0, 0] == pytest.approx(0.5 * np.sqrt(weight * (1.0 - weight)))


def test_a_given_sequence_competes() -> None:
    plan = mppi(near_best, 0.01 * noise(6, candidates=64), elites=4, temperature=1000.0, given=BEST.reshape(1, 1, 1, 2))
    assert np.abs(plan.mean[0, 0] - BEST).max() < 0.02


def test_a_shifted_plan_starts_one_step_later() -> None:
    plan = np.arange(6.0).reshape(1, 3, 2)
    np.testing.assert_array_equal(shifted(plan, 9.0), [[[2.0, 3.0], [4.0, 5.0], [9.0, 9.0]]])


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="between 1 and all 5 candidates"):
        cem(near_best, noise(0, candidates=5), elites=6)
    with pytest.raises(ValueError, match="iterations, B, candidates, H, A"):
        cem(near_best, np.zeros((3, 4)), elites=1)
    with pytest.raises(ValueError, match="must be \\(1, 5\\)"):
        cem(lambda a: np.zeros(5), noise(0, candidates=5), elites=2)
