"""Advantages and returns against numbers worked out by hand and against the definitions, term by term."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from rl_training.numerics import returns
from rl_training.numerics.returns import (
    discounted_returns,
    explained_variance,
    gae,
    lambda_return,
    n_step_returns,
    running_returns,
)
from rl_training.types import Array

REWARDS = np.array([1.0, 2.0, 3.0])
VALUES = np.array([0.5, 1.0, 1.5])
NEXT_VALUES = np.array([1.0, 4.0, 2.0])  # step 1's final observation is worth 4; 2 is the last bootstrap
AT_1 = np.array([False, True, False])
NEVER = np.zeros(3, np.bool_)


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(returns).failed == 0


# -- gae --------------------------------------------------------------------------------------------------------------


def test_gae_bootstraps_at_truncation() -> None:
    advantages, targets = gae(REWARDS, VALUES, NEXT_VALUES, NEVER, AT_1, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(advantages, [4.712, 4.6, 3.3], atol=1e-12)
    np.testing.assert_allclose(targets, [5.212, 5.6, 4.8], atol=1e-12)


def test_gae_does_not_bootstrap_at_termination() -> None:
    advantages, _ = gae(REWARDS, VALUES, NEXT_VALUES, AT_1, AT_1, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(advantages, [2.12, 1.0, 3.3], atol=1e-12)


def test_gae_cuts_at_termination_even_where_ends_forgets_it() -> None:
    advantages, _ = gae(REWARDS, VALUES, NEXT_VALUES, AT_1, NEVER, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(advantages, [2.12, 1.0, 3.3], atol=1e-12)


def test_gae_ignores_the_value_behind_a_terminal_step() -> None:
    behind = np.array([1.0, np.nan, 2.0])
    advantages, _ = gae(REWARDS, VALUES, behind, AT_1, AT_1, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(advantages, [2.12, 1.0, 3.3], atol=1e-12)


def random_case(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random rows (T, N) with episode ends, about half of them followed by a reset row as in NEXT_STEP environments."""
    shape = (int(rng.integers(1, 30)), int(rng.integers(1, 5)))
    valid = np.ones(shape, np.bool_)
    ends = rng.random(shape) < 0.2
    resets = rng.random(shape[1]) < 0.5
    for t in range(1, shape[0]):
        valid[t] = ~(resets & ends[t - 1] & valid[t - 1])
        ends[t] &= valid[t]
    case = {name: rng.normal(size=shape) for name in ("rewards", "values", "next_values")}
    return {**case, "terminated": ends & (rng.random(shape) < 0.5), "ends": ends, "valid": valid}


def gae_by_double_sum(case: dict[str, np.ndarray], gamma: float, gae_lambda: float) -> np.ndarray:
    """The definition, term by term: sum of (gamma * lambda)^k * delta over the rest of the episode."""
    rewards = case["rewards"]
    delta = rewards + gamma * case["next_values"] * ~case["terminated"] - case["values"]
    advantages = np.zeros_like(rewards)
    for t, i in np.ndindex(rewards.shape):
        weight = 1.0
        for k in range(t, len(rewards) if case["valid"][t, i] else t):
            if not case["valid"][k, i]:
                continue
            advantages[t, i] += weight * delta[k, i]
            weight *= gamma * gae_lambda
            if case["ends"][k, i]:
                break
    return advantages


def test_gae_equals_the_double_sum_on_a_thousand_random_cases() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        case = random_case(rng)
        gamma, gae_lambda = rng.random(2)
        advantages, targets = gae(**case, gamma=gamma, gae_lambda=gae_lambda)
        expected = gae_by_double_sum(case, gamma, gae_lambda)
        np.testing.assert_allclose(advantages, expected, atol=1e-9)
        np.testing.assert_allclose(targets, expected + case["values"], atol=1e-9)


def test_gae_passes_over_rows_that_are_no_transitions() -> None:
    """Two episodes with a reset row between them give what the same rows give without it; garbage there is ignored."""
    rewards, values, next_values = REWARDS, VALUES, NEXT_VALUES
    dense, _ = gae(rewards, values, next_values, NEVER, AT_1, gamma=0.9, gae_lambda=0.8)
    row = 2  # behind the row that ended
    sparse, targets = gae(
        np.insert(rewards, row, np.nan),
        np.insert(values, row, 7.0),
        np.insert(next_values, row, np.inf),
        np.insert(NEVER, row, False),
        np.insert(AT_1, row, False),
        gamma=0.9,
        gae_lambda=0.8,
        valid=np.array([True, True, False, True]),
    )
    np.testing.assert_array_equal(sparse, np.insert(dense, row, 0.0))
    assert targets[row] == 7.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gae_keeps_the_dtype_and_its_inputs(dtype: type) -> None:
    inputs = [array.astype(dtype) for array in (REWARDS, VALUES, NEXT_VALUES)]
    before = [array.copy() for array in inputs]
    advantages, targets = gae(*inputs, NEVER, AT_1, gamma=0.9, gae_lambda=0.8)
    assert advantages.dtype == targets.dtype == dtype
    np.testing.assert_allclose(advantages, [4.712, 4.6, 3.3], rtol=1e-5)
    for array, old in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_columns_are_independent() -> None:
    rng = np.random.default_rng(1)
    case = {name: value[:, :1] for name, value in random_case(rng).items()}
    alone, _ = gae(**case, gamma=0.97, gae_lambda=0.9)
    both, _ = gae(
        **{name: np.concatenate([value, value], axis=1) for name, value in case.items()}, gamma=0.97, gae_lambda=0.9
    )
    np.testing.assert_array_equal(both, np.concatenate([alone, alone], axis=1))


def test_shapes_that_would_broadcast_are_refused() -> None:
    square = np.zeros((3, 3))
    with pytest.raises(ValueError, match="one shape"):
        gae(square, VALUES, square, square, square, gamma=0.9, gae_lambda=0.8)
    with pytest.raises(ValueError, match="rewards' shape"):
        gae(square, square, square, NEVER, square, gamma=0.9, gae_lambda=0.8)


# -- the other returns ------------------------------------------------------------------------------------------------


def test_n_step_returns_truncated_and_terminated() -> None:
    rewards, q = np.array([1.0, 2.0, 3.0, 4.0]), np.full(4, 10.0)
    end, never = np.array([False, False, False, True]), np.zeros(4, np.bool_)
    truncated = n_step_returns(rewards, q, never, end, gamma=0.9, n=3)
    terminated = n_step_returns(rewards, q, end, end, gamma=0.9, n=3)
    np.testing.assert_allclose(truncated, [12.52, 15.23, 14.7, 13.0], atol=1e-12)
    np.testing.assert_allclose(terminated, [12.52, 7.94, 6.6, 4.0], atol=1e-12)


def test_n_step_windows_do_not_cross_an_episode() -> None:
    rewards, q = np.array([1.0, 2.0, 100.0]), np.full(3, 10.0)
    targets = n_step_returns(rewards, q, np.array([False, True, False]), np.array([False, True, False]), gamma=0.5, n=9)
    np.testing.assert_allclose(targets, [1 + 0.5 * 2, 2, 100 + 0.5 * 10])


def test_one_step_is_the_td_target() -> None:
    targets = n_step_returns(REWARDS, NEXT_VALUES, AT_1, AT_1, gamma=0.9, n=1)
    np.testing.assert_allclose(targets, [1.9, 2.0, 4.8])
    with pytest.raises(ValueError, match="n >= 1"):
        n_step_returns(REWARDS, NEXT_VALUES, AT_1, AT_1, gamma=0.9, n=0)


def test_lambda_return_of_a_world_model() -> None:
    rewards, boot, live = np.array([1.0, 2.0]), np.array([4.0, 6.0]), np.zeros(2, np.bool_)
    first = np.array([True, False])
    np.testing.assert_allclose(
        lambda_return(rewards, boot, live, live, gamma=0.9, gae_lambda=0.5), [6.13, 7.4], atol=1e-12
    )
    np.testing.assert_allclose(
        lambda_return(rewards, boot, first, first, gamma=0.9, gae_lambda=0.5), [1.0, 7.4], atol=1e-12
    )


def test_lambda_return_equals_the_returns_of_gae() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        case = random_case(rng)
        case.pop("valid")
        case["next_values"][:-1] = np.where(case["ends"][:-1], case["next_values"][:-1], case["values"][1:])
        _, expected = gae(**case, gamma=0.9, gae_lambda=0.7)
        case.pop("values")
        np.testing.assert_allclose(lambda_return(**case, gamma=0.9, gae_lambda=0.7), expected, atol=1e-9)


def test_discounted_returns_stop_at_episode_ends() -> None:
    result = discounted_returns(np.array([1, 1, 1, 1]), np.array([False, False, True, False]), gamma=0.5)
    np.testing.assert_array_equal(result, [1.75, 1.5, 1.0, 1.0])


def test_running_returns_restart_per_environment_and_skip_invalid_rows() -> None:
    rewards = np.ones((4, 2))
    ends = np.array([[False, False], [True, False], [False, False], [False, True]])
    valid = np.array([[True, True], [True, True], [False, True], [True, True]])
    sums, left = running_returns(rewards, ends, np.array([2.0, 0.0]), gamma=0.5, valid=valid)
    np.testing.assert_array_equal(sums, [[2.0, 1.0], [2.0, 1.5], [0.0, 1.75], [1.0, 1.875]])
    np.testing.assert_array_equal(left, [1.0, 0.0])


def test_running_returns_in_pieces_equal_the_whole() -> None:
    rng = np.random.default_rng(3)
    case = random_case(rng)
    case = {name: np.concatenate([value] * 3) for name, value in case.items()}
    start = np.zeros(case["rewards"].shape[1])
    whole, left = running_returns(case["rewards"], case["ends"], start, gamma=0.9)
    for cut in range(1, len(whole)):
        head, between = running_returns(case["rewards"][:cut], case["ends"][:cut], start, gamma=0.9)
        tail, last = running_returns(case["rewards"][cut:], case["ends"][cut:], between, gamma=0.9)
        np.testing.assert_array_equal(np.concatenate([head, tail]), whole)
        np.testing.assert_array_equal(last, left)


def test_explained_variance() -> None:
    assert explained_variance([1, 2, 4], [1, 2, 3]) == pytest.approx(2 / 3, abs=1e-12)
    assert explained_variance([1, 2, 3], [1, 2, 3]) == 1.0
    assert explained_variance([2, 2, 2], [1, 2, 3]) == 0.0
    assert explained_variance([5, 5], [1, 1]) == 1.0
    assert explained_variance([0, 1], [1, 1]) == 0.0


class TestDiscountsPerRow:
    """Lambda-returns of world models: row t holds the reward of the next state, its value and its discount."""

    REWARDS = np.array([0.0, 1.0, 0.0, 2.0, 1.0])
    VALUES = np.array([0.5, 1.0, 2.0, 1.0, 3.0])

    def returns(self, discounts: list[float], gae_lambda: float = 0.95, ends: tuple[bool, ...] = (False,) * 4) -> Array:
        none = np.zeros(4, bool)
        return lambda_return(
            self.REWARDS[1:], self.VALUES[1:], none, ends, gamma=np.array(discounts), gae_lambda=gae_lambda
        )

    def test_against_worked_out_numbers(self) -> None:
        live = [0.9] * 4
        np.testing.assert_allclose(self.returns(live), [4.9294937125, 4.5432675, 5.2085, 3.7], atol=1e-12)
        np.testing.assert_allclose(self.returns([0.9, 0.0, 0.9, 0.9]), [1.045, 0.0, 5.2085, 3.7], atol=1e-12)
        np.testing.assert_allclose(self.returns(live, gae_lambda=0.0), [1.9, 1.8, 2.9, 3.7], atol=1e-12)
        np.testing.assert_allclose(self.returns(live, gae_lambda=1.0), [5.3173, 4.797, 5.33, 3.7], atol=1e-12)

    def test_a_time_limit_bootstraps(self) -> None:
        found = self.returns([0.9] * 4, ends=(False, True, False, False))
        np.testing.assert_allclose(found, [2.584, 1.8, 5.2085, 3.7], atol=1e-12)

    def test_equal_discounts_are_one_discount(self) -> None:
        rng = np.random.default_rng(0)
        rewards, values = rng.normal(size=(2, 7, 3))
        ends = rng.random((7, 3)) < 0.2
        terminated = ends & (rng.random((7, 3)) < 0.5)
        one = lambda_return(rewards, values, terminated, ends, gamma=0.93, gae_lambda=0.8)
        many = lambda_return(rewards, values, terminated, ends, gamma=np.full((7, 3), 0.93), gae_lambda=0.8)
        np.testing.assert_array_equal(one, many)

    def test_discounts_of_another_shape_are_refused(self) -> None:
        with pytest.raises(ValueError, match="discounts"):
            self.returns([0.9] * 3)
