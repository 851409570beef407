"""Dynamics on systems whose true model is known: a linear-Gaussian chain, and a fork that no mean can predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from known_systems import (
    DECAY,
    NOISE,
    PUSH,
    EnsembleLearner,
    LatentLearner,
    Trajectories,
    chain,
    fork,
    trained,
    true_samples,
)

from rl_training.dynamics import build_dynamics
from rl_training.dynamics.ensemble import Ensemble
from rl_training.numerics.stable import HALF_LOG_2PI
from rl_training.types import Array

GAUSSIAN = {"deter": 32, "hidden": 32, "stoch": 4, "latent": "gaussian"}
CATEGORICAL = {"deter": 32, "hidden": 32, "stoch": 8, "classes": 8}
STOCHASTIC = {"stoch": 4, "hidden": 32}


def latent(kind: str, kwargs: dict[str, Any], seed: int = 0) -> LatentLearner:
    return LatentLearner(build_dynamics(kind, kwargs, (1, 1), np.random.default_rng(seed)), seed)


def ensemble(seed: int = 0) -> EnsembleLearner:
    made = build_dynamics("ensemble", {"members": 3, "hidden": 32, "layers": 2}, (1, 1), np.random.default_rng(seed))
    assert isinstance(made, Ensemble)
    return EnsembleLearner(made, seed)


# -- the chain --------------------------------------------------------------------------------------------------------


def nll(values: Array, mean: Array, std: Array) -> float:
    """Mean negative log-likelihood of values under Gaussians, in nats."""
    return float((0.5 * ((values - mean) / std) ** 2 + np.log(std) + HALF_LOG_2PI).mean())


def check_chain(learner: LatentLearner | EnsembleLearner) -> None:
    """One-step likelihood within 5% of the true model's, error after 15 steps within 1.5 of it, spread within 20%."""
    rng, start = np.random.default_rng(9), 5
    test = chain(rng, start + 16, 400)
    true, found = true_samples(test, start, 64, rng), learner.samples(test, start, 64)

    final = test.obs[-1, :, 0]
    error, true_error = (float(np.sqrt(((each[-1].mean(1) - final) ** 2).mean())) for each in (found, true))
    assert error <= 1.5 * true_error
    spread, true_spread = float(found[-1].std(1).mean()), float(true[-1].std(1).mean())
    assert spread == pytest.approx(true_spread, rel=0.2)

    next_obs = test.obs[start + 1, :, 0]
    first = learner.samples(Trajectories(test.obs[: start + 2], test.actions[: start + 2]), start, 512)[0]
    mean = DECAY * test.obs[start, :, 0] + PUSH * test.actions[start + 1, :, 0]
    best = nll(next_obs, mean, np.full_like(mean, NOISE))
    assert nll(next_obs, first.mean(1), first.std(1)) <= 1.05 * best


def test_an_ensemble_learns_the_chain() -> None:
    learner = ensemble()
    trained(learner, chain, 400, 8)
    check_chain(learner)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kwargs"), [("stochastic", STOCHASTIC), ("rssm", GAUSSIAN)])
def test_latent_dynamics_learn_the_chain(kind: str, kwargs: dict[str, Any]) -> None:
    learner = latent(kind, kwargs)
    trained(learner, chain, 2000, 8)
    check_chain(learner)


# -- the fork ---------------------------------------------------------------------------------------------------------


def foreseen(learner: LatentLearner) -> Array:
    """Where 400 futures end, three steps after the only observation seen."""
    return learner.samples(fork(np.random.default_rng(9), 4, 400), 0, 1, noise_of_sight=False)[-1, :, 0]


@pytest.mark.parametrize(("kind", "kwargs"), [("stochastic", STOCHASTIC), ("rssm", GAUSSIAN), ("rssm", CATEGORICAL)])
def test_random_dynamics_foresee_both_branches_of_a_fork(kind: str, kwargs: dict[str, Any]) -> None:
    learner = latent(kind, kwargs)
    trained(learner, fork, 400, 4)
    ends = foreseen(learner)
    at_a_branch = np.abs(np.abs(ends) - 1.0) <= 0.2
    assert at_a_branch.mean() >= 0.97  # the rest: a continuous map of noise passes from one branch to the other
    assert 0.35 <= (ends > 0.0).mean() <= 0.65


def test_deterministic_dynamics_foresee_the_middle() -> None:
    learner = latent("deterministic", {"deter": 32, "hidden": 32})
    trained(learner, fork, 300, 4)
    assert np.abs(foreseen(learner)).max() < 0.2
