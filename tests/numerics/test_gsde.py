"""State-dependent exploration: when noise is resampled, and that it agrees with the log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.on_policy import ActorCriticPolicy
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.hparams.ppo import PPOConfig
from rl_training.models.heads import StateDependentGaussianHead
from rl_training.numerics.gsde import carry_like, due, first_draws
from rl_training.seeding import Streams
from rl_training.types import BoxSpec

N, WIDTH = 2, 3
BEGINNINGS = ((0, 5), (0, 3))
"""Steps at which an episode of either environment begins."""
DRAWN = {-1: ((0, 5), (0, 3)), 2: ((0, 2, 4, 5, 7), (0, 2, 3, 5, 7)), 1: (tuple(range(8)),) * 2, 100: BEGINNINGS}
"""Steps at which they draw, by `sde_sample_freq`."""


def box(size: int) -> BoxSpec:
    bound = np.full(size, 10.0, np.float32)
    return BoxSpec(-bound, bound, np.dtype(np.float32))


def is_first(step: int) -> Any:
    return np.array([step in begins for begins in BEGINNINGS])


@pytest.mark.parametrize("every", DRAWN)
def test_draws_are_due_at_the_beginning_of_episodes_and_every_so_many_steps(every: int) -> None:
    age, found = first_draws(N, WIDTH, 1)["age"], []
    for step in range(8):
        stale, age = due(age, is_first(step), every)
        found.append(stale)
    assert tuple(tuple(np.flatnonzero(column).tolist()) for column in np.array(found).T) == DRAWN[every]


def test_ages_do_not_grow_without_end() -> None:
    """A 32-bit age of an episode that never ends would wrap."""
    for every in (-1, 7):
        age = np.zeros(1, np.int32)
        for _ in range(50):
            _, age = due(age, np.zeros(1, bool), every)
            assert 0 <= int(age[0]) < max(every, 2)


def policy_of(every: int) -> tuple[ActorCriticPolicy, StateDependentGaussianHead]:
    backbone = BackboneConfig(hidden_dims=(WIDTH,))
    network = NetworkConfig(backbone, backbone)
    ctx = BuildContext(box(4), box(1), num_envs=N, network=network, streams=Streams(3))
    policy = ActorCriticPolicy(ctx, PPOConfig(use_sde=True, sde_sample_freq=every))
    assert isinstance(policy.head, StateDependentGaussianHead)
    return policy, policy.head


@pytest.mark.parametrize("every", DRAWN)
def test_the_torch_policy_draws_exactly_when_it_is_due(every: int) -> None:
    policy, _ = policy_of(every)
    rng, carry, seen = np.random.default_rng(0), policy.initial_carry(N), []
    expected = np.random.default_rng(0)  # the same numbers, drawn only where the table says so
    for step in range(8):
        carry = policy.act(np.ones((N, 4), np.float32), carry, is_first(step), rng).carry
        seen.append(carry["draws"].copy())
        for env in range(N):
            if step in DRAWN[every][env]:
                np.testing.assert_array_equal(seen[step][env], expected.standard_normal((WIDTH, 1), dtype=np.float32))
            else:
                np.testing.assert_array_equal(seen[step][env], seen[step - 1][env])


def test_actions_follow_a_log_std_that_moved_within_an_episode() -> None:
    """The same draw under e times the standard deviation gives e times the noise, with a log-density lower by 1."""
    policy, head = policy_of(-1)
    obs, rng = np.ones((N, 4), np.float32), np.random.default_rng(0)
    first = policy.act(obs, policy.initial_carry(N), np.ones(N, bool), rng)
    mean = policy.act(obs, first.carry, np.zeros(N, bool), rng, deterministic=True).actions

    def logprobs(actions: Any) -> Any:
        return policy.network(torch.from_numpy(obs), torch.from_numpy(actions))[0].detach().numpy()

    before = logprobs(first.actions)
    with torch.no_grad():
        head.log_std += 1.0
    moved = policy.act(obs, first.carry, np.zeros(N, bool), rng).actions
    np.testing.assert_allclose(moved - mean, np.e * (first.actions - mean), rtol=1e-5)
    np.testing.assert_allclose(logprobs(moved), before - 1.0, atol=1e-4)


def test_a_carry_of_version_0_1_draws_anew_at_the_next_step() -> None:
    expected = {"actor": np.zeros((N, 5), np.float32), **first_draws(N, WIDTH, 1)}
    saved = {"actor": np.ones((N, 5)), "noise": np.ones((N, WIDTH, 1)), "age": np.full(N, 9)}
    carry = carry_like(expected, saved)
    assert carry.keys() == expected.keys()
    assert carry["actor"].all()
    assert not carry["age"].any()
    assert due(carry["age"], np.zeros(N, bool), 16)[0].all()


def test_other_carries_come_back_as_they_are() -> None:
    own = {"noise": np.ones(3), "age": np.ones(3)}
    assert carry_like({"noise": np.zeros(3), "age": np.zeros(3)}, own) == own
    now = {"draws": np.ones((N, WIDTH, 1)), "age": np.ones(N)}
    assert carry_like(first_draws(N, WIDTH, 1), now) == now
