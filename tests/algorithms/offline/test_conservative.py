"""CQL: the penalty by hand, where its gradient goes, and what is left of it with weight 0."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from offline_cases import ACTION, OBS, ONE, SMALL, batch, context

from rl_training.algorithms.offline.cql import (
    CQL,
    CQLConfig,
    DiscreteCQL,
    calibrated,
    conservative_penalty,
    cql,
    discrete_penalty,
)
from rl_training.algorithms.sac import SAC, SACConfig
from rl_training.build_context import BuildContext
from rl_training.seeding import Streams
from rl_training.types import DiscreteSpec, Progress


def test_the_penalty_by_hand() -> None:
    values = torch.tensor([[[1.0, 2.0]], [[0.0, 0.0]]])  # two critics, one state, two actions
    logprobs = torch.log(torch.tensor([[0.5, 0.25]]))
    chosen = torch.tensor([[3.0], [1.0]])
    first = math.log(math.exp(1.0) / 0.5 + math.exp(2.0) / 0.25) - 3.0
    second = math.log(2.0 + 4.0) - 1.0
    assert float(conservative_penalty(values, logprobs, chosen)) == pytest.approx(first + second, abs=1e-5)


def test_the_gradient_of_the_penalty_goes_through_the_logsumexp() -> None:
    values = torch.tensor([[[1.0, 3.0]]], requires_grad=True)
    conservative_penalty(values, torch.zeros(1, 2), torch.zeros(1, 1)).backward()
    weights = torch.softmax(torch.tensor([1.0, 3.0]), 0)
    assert values.grad is not None
    torch.testing.assert_close(values.grad[0, 0], weights)


def test_a_floor_stops_the_push_on_the_policy_s_actions_only() -> None:
    values = torch.tensor([[[-5.0, -5.0, 2.0]]], requires_grad=True)
    raised = calibrated(values, torch.tensor([1.0]), count=1)
    assert raised.tolist() == [[[-5.0, 1.0, 2.0]]]
    raised.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[[1.0, 0.0, 1.0]]]


def test_the_discrete_penalty_by_hand() -> None:
    values = torch.tensor([[1.0, 2.0, 9.0]])
    plain = discrete_penalty(values[:, :2], torch.tensor([1.0]))
    assert float(plain) == pytest.approx(math.log(math.e + math.e**2) - 1.0, abs=1e-6)
    masked = discrete_penalty(values, torch.tensor([1.0]), torch.tensor([[1, 1, 0]]))
    assert float(masked) == pytest.approx(float(plain), abs=1e-6)


def test_weight_zero_is_sac_without_entropy_in_its_targets() -> None:
    hparams = CQLConfig(weight=0.0, alpha=0.2)
    conservative, plain, soft = (
        CQL(context(), hparams),
        SAC(context(), SACConfig(alpha=0.0, kernel="reference")),
        SAC(context(), SACConfig(alpha=0.2, kernel="reference")),
    )
    steps = [algorithm.critics_gradient(algorithm.prepare(batch()), 0.2) for algorithm in (conservative, plain, soft)]
    grads = [algorithm.learners["critics"].parameters.grad for algorithm in (conservative, plain, soft)]
    assert not torch.equal(grads[0], grads[2])
    plain = SAC(context(), SACConfig(alpha=0.0, kernel="reference"))
    plain.critics_gradient(plain.prepare(batch()), 0.0)
    assert torch.equal(grads[0], plain.learners["critics"].parameters.grad)
    assert float(steps[0].loss) > 0.0
    for algorithm in (conservative, soft):
        algorithm.actor_gradient(algorithm.prepare(batch()), 0.2)
    assert torch.equal(conservative.learners["actor"].parameters.grad, soft.learners["actor"].parameters.grad)


def test_a_small_weight_tends_to_weight_zero() -> None:
    none, small = (CQL(context(), CQLConfig(weight=weight, num_sampled=3)) for weight in (0.0, 1e-7))
    for algorithm in (none, small):
        algorithm.critics_gradient(algorithm.prepare(batch()), 0.2)
    one, other = (algorithm.learners["critics"].parameters.grad for algorithm in (none, small))
    torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_actions_that_the_data_lack_are_valued_below_those_it_has(seed: int) -> None:
    """A bandit whose data hold action 0 alone: the value of 0.8 ends below that of 0, with and without floors."""
    for calibrate in ("never", "always"):
        hparams = CQLConfig(learning_rate=1e-3, num_sampled=4, calibrate=calibrate)  # type: ignore[arg-type]
        algorithm = CQL(BuildContext(ONE, ONE, network=SMALL, streams=Streams(seed)), hparams)
        ends = np.ones(32, bool)
        rows: dict[str, Any] = {"obs": np.ones((32, 1), np.float32), "next_obs": np.ones((32, 1), np.float32)}
        rows |= {"actions": np.zeros((32, 1), np.float32), "rewards": np.ones(32, np.float32)}
        rows |= {"returns_to_go": np.ones(32, np.float32)}
        for _ in range(500):
            algorithm.update({**rows, "terminated": ends, "truncated": ~ends})
        with torch.no_grad():
            here, there = (float(algorithm.critics(torch.ones(1, 1), torch.full((1, 1), a)).min()) for a in (0.0, 0.8))
        assert there < here, calibrate


def test_floors_are_for_runs_that_step_an_environment() -> None:
    offline = replace(context(), progress=Progress(axis="updates"))
    assert not CQL(offline, CQLConfig()).calibrates
    assert CQL(context(), CQLConfig()).calibrates
    assert CQL(offline, CQLConfig(calibrate="always")).calibrates
    assert not CQL(context(), CQLConfig(calibrate="never")).calibrates


def test_actor_and_critics_have_their_own_step_sizes() -> None:
    algorithm = CQL(context(), CQLConfig(learning_rate=2.0, actor_learning_rate=3.0))
    assert [algorithm.rate(name) for name in ("critics", "actor", "temperature")] == [2.0, 3.0, 3.0]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_discrete_values_of_absent_actions_stay_low(seed: int) -> None:
    """Data hold actions 0 and 1 of 4, of which 1 is better: the greedy action is 1, absent ones are valued below."""
    ctx = BuildContext(ONE, DiscreteSpec(4), network=SMALL, streams=Streams(seed))
    algorithm = cql(ctx, CQLConfig(learning_rate=3e-3, weight=0.5, tau=0.1))
    assert isinstance(algorithm, DiscreteCQL)
    rng, ends = np.random.default_rng(seed), np.ones(64, bool)
    obs = np.ones((64, 1), np.float32)
    for _ in range(400):
        actions = rng.integers(2, size=64)
        rows = {"obs": obs, "next_obs": obs, "actions": actions, "rewards": actions.astype(np.float32)}
        metrics = algorithm.update({**rows, "terminated": ends, "truncated": ~ends}).metrics
    assert np.isfinite(float(metrics["penalty"]))
    greedy = algorithm.policy.act(obs[:1], {}, np.ones(1, bool), rng, deterministic=True)
    assert greedy.actions.tolist() == [1]
    values = algorithm.policy.action_values(obs[:1], None)[0]
    assert values[2:].max() < values[:2].min()


def test_box_and_discrete_actions_have_their_own_class() -> None:
    assert isinstance(cql(context(), CQLConfig()), CQL)
    assert isinstance(cql(BuildContext(OBS, DiscreteSpec(2), network=SMALL), CQLConfig()), DiscreteCQL)
    assert ACTION.shape == (2,)
