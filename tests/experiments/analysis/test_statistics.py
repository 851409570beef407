"""Statistics over runs: against values worked out by hand, by enumeration, and by SciPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from rl_training.experiments.analysis.statistics import (
    Statistic,
    bootstrap,
    curve_band,
    estimate,
    iqm,
    mean,
    median,
    performance_profile,
    probability_of_improvement,
)


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 30.0], 11.0),  # a quarter of three, rounded down, is nothing
        ([1.0, 2.0, 3.0, 100.0], 2.5),
        ([5.0, 1.0, 3.0, 2.0, 100.0], 10.0 / 3.0),
        ([0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1000.0], 5.5),
    ],
)
def test_iqm_is_the_mean_of_the_middle_half(scores: list[float], expected: float) -> None:
    assert iqm(np.array(scores)) == pytest.approx(expected, abs=1e-12)
    assert stats.trim_mean(scores, 0.25) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("size", range(1, 30))
def test_iqm_equals_scipy_for_every_size(size: int) -> None:
    scores = generator().normal(size=(5, size))
    np.testing.assert_allclose(iqm(scores), stats.trim_mean(scores, 0.25, axis=1), rtol=1e-12)


def test_mean_and_median_go_along_the_last_axis() -> None:
    scores = np.array([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]])
    assert mean(scores).tolist() == [3.0, 1.0]
    assert median(scores).tolist() == [2.0, 0.0]


@pytest.mark.parametrize("statistic", [mean, median, iqm])
def test_the_bootstrap_has_the_exact_distribution(statistic: object) -> None:
    """Four runs have 4^4 equally likely redraws: enumerate them, and compare the distribution functions."""
    scores = np.array([1.0, 2.0, 4.0, 8.0])
    redraws = np.array(list(itertools.product(scores, repeat=4)))
    exact = statistic(redraws)  # type: ignore[operator]
    draws = bootstrap([scores], statistic, rng=generator(), num_resamples=40_000)  # type: ignore[arg-type]
    values = np.unique(exact)
    difference = [abs((exact <= value).mean() - (draws <= value + 1e-9).mean()) for value in values]
    assert max(difference) < 0.01  # the 0.1% point of Kolmogorov and Smirnov for 40,000 draws


def test_the_interval_is_between_the_quantiles_of_the_exact_distribution() -> None:
    """Of two runs 0 and 1 the redrawn mean is 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4."""
    at_95 = estimate([[0.0, 1.0]], mean, rng=generator())
    assert (at_95.value, at_95.low, at_95.high, at_95.confidence) == (0.5, 0.0, 1.0, 0.95)
    at_40 = estimate([[0.0, 1.0]], mean, rng=generator(), confidence=0.4)
    assert (at_40.low, at_40.high) == (0.5, 0.5)


def test_the_interval_agrees_with_scipy() -> None:
    scores = generator().normal(100.0, 10.0, size=12)
    ours = estimate([scores], iqm, rng=generator(), num_resamples=20_000)
    theirs = stats.bootstrap(
        (scores,), lambda x, axis: stats.trim_mean(x, 0.25, axis=axis), method="percentile", n_resamples=20_000,
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert ours.low == pytest.approx(theirs.low, abs=0.2)
    assert ours.high == pytest.approx(theirs.high, abs=0.2)


def test_runs_are_drawn_within_their_task() -> None:
    """Two tasks whose runs all agree: whatever is drawn, nothing can change; across tasks it would."""
    draws = bootstrap([[0.0, 0.0, 0.0], [10.0, 10.0]], mean, rng=generator(), num_resamples=100)
    assert np.unique(draws).tolist() == [4.0]


def test_the_generator_decides_and_chunks_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [[1.0, 5.0, 9.0, 2.0]]
    first = bootstrap(scores, iqm, rng=generator(), num_resamples=1000)
    monkeypatch.setattr("rl_training.experiments.analysis.statistics.CHUNK_VALUES", 40)
    np.testing.assert_array_equal(bootstrap(scores, iqm, rng=generator(), num_resamples=1000), first)
    other = bootstrap(scores, iqm, rng=np.random.default_rng(1), num_resamples=1000)
    assert (other != first).any()


def test_one_run_has_a_value_and_no_interval() -> None:
    alone = estimate([[3.0]], rng=generator())
    assert (alone.value, alone.low, alone.high) == (3.0, None, None)


@pytest.mark.parametrize("statistic", [mean, median, iqm])
def test_a_95_percent_interval_covers_about_that_much(statistic: Statistic) -> None:
    """Ten runs on each of five tasks, 1000 times: a little less than 95%, as percentile intervals do."""
    rng = generator()
    hits = 0
    for _ in range(1000):
        found = estimate(list(rng.normal(size=(5, 10))), statistic, rng=rng, num_resamples=400)
        hits += found.low is not None and found.high is not None and found.low <= 0.0 <= found.high
    assert 0.90 <= hits / 1000 <= 0.97


def test_the_interval_of_an_improvement_covers_about_that_much() -> None:
    """Normal scores that are one apart: the truth is Phi(1 / sqrt 2) on every task."""
    rng = generator()
    truth = stats.norm.cdf(1 / np.sqrt(2))
    hits = 0
    for _ in range(1000):
        better, worse = rng.normal(1.0, size=(5, 10)), rng.normal(size=(5, 10))
        found = probability_of_improvement(list(better), list(worse), rng=rng, num_resamples=400)
        hits += found.low is not None and found.high is not None and found.low <= truth <= found.high
    assert 0.90 <= hits / 1000 <= 0.97


def test_few_runs_are_too_sure_of_themselves() -> None:
    """The figures of docs/groups.md: 75% for three normally distributed scores, 93% for ten."""
    rng = generator()

    def coverage(num_runs: int) -> float:
        found = [estimate([rng.normal(size=num_runs)], rng=rng, num_resamples=400) for _ in range(400)]
        return sum((one.low or 0.0) <= 0.0 <= (one.high or 0.0) for one in found) / 400

    assert 0.69 <= coverage(3) <= 0.81
    assert 0.89 <= coverage(10) <= 0.97


def test_a_band_is_the_interval_at_every_point() -> None:
    curves = np.array([[0.0, 10.0], [1.0, 10.0]])
    line, low, high = curve_band(curves, mean, rng=generator())
    assert (line.tolist(), low.tolist(), high.tolist()) == ([0.5, 10.0], [0.0, 10.0], [1.0, 10.0])
    line, low, high = curve_band(curves[:1], rng=generator())
    assert line.tolist() == low.tolist() == high.tolist() == [0.0, 10.0]


def test_probability_of_improvement_by_hand() -> None:
    """40 beats three of 10, 20, 30, 60; so does 50; 60 ties the last; 70 beats all: 13.5 of 16 pairs."""
    found = probability_of_improvement([[40, 50, 60, 70]], [[10, 20, 30, 60]], rng=generator())
    assert found.value == 13.5 / 16
    assert found.low is not None
    assert found.high is not None
    assert 0.4 < found.low < found.value < found.high == 1.0
    turned = probability_of_improvement([[10, 20, 30, 60]], [[40, 50, 60, 70]], rng=generator())
    assert turned.value == 2.5 / 16
    alone = probability_of_improvement([[1.0]], [[2.0]], rng=generator())
    assert (alone.value, alone.low, alone.high) == (0.0, None, None)


def test_probability_of_improvement_equals_scipy() -> None:
    """Mann and Whitney's U over the number of pairs, ties included; over tasks the mean, however many runs each has."""
    rng = generator()
    tasks = [(rng.integers(0, 9, size=7), rng.integers(0, 9, size=5)), (rng.normal(size=3), rng.normal(size=11))]
    each = [stats.mannwhitneyu(one, other).statistic / (len(one) * len(other)) for one, other in tasks]
    found = probability_of_improvement([one for one, _ in tasks], [other for _, other in tasks], rng=generator())
    assert found.value == pytest.approx(np.mean(each), abs=1e-12)


def test_the_redraws_of_an_improvement_have_the_exact_distribution() -> None:
    """Two runs against two have 16 equally likely redraws; the 30% and 70% points of 1, 5, 4, 5, 1 of 16 are exact."""
    ours, theirs = [1.0, 3.0], [0.0, 2.0]
    exact = [
        np.mean([a > b for a in mine for b in other])
        for mine in itertools.product(ours, repeat=2)
        for other in itertools.product(theirs, repeat=2)
    ]
    found = probability_of_improvement([ours], [theirs], rng=generator(), confidence=0.4)
    assert (found.low, found.high) == tuple(np.quantile(exact, [0.3, 0.7], method="inverted_cdf"))


def test_performance_profile_by_hand() -> None:
    line, low, high = performance_profile([[1.0, 2.0], [3.0, 3.0]], np.array([0.0, 2.0, 2.5, 4.0]), rng=generator())
    assert line.tolist() == [1.0, 0.75, 0.5, 0.0]
    # the second task always has both of its runs above 2.5; of the first, none, one or both are at 2 or more
    assert (low.tolist(), high.tolist()) == ([1.0, 0.5, 0.5, 0.0], [1.0, 1.0, 0.5, 0.0])


@pytest.mark.parametrize("scores", [[], [[1.0, 2.0]], [1.0, float("nan")], [float("inf")]])
def test_what_is_no_list_of_scores_is_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="score"):
        estimate([scores], rng=generator())
