"""ReBRAC and AWAC: numbers by hand, limits, and what they learn on a bandit."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from offline_cases import BEST, batch, context, learnt_action
from torch import Tensor

from rl_training.algorithms.off_policy import Transitions
from rl_training.algorithms.offline.awac import AWAC, AWACConfig
from rl_training.algorithms.offline.rebrac import ReBRAC, ReBRACConfig, distances, rebrac_loss
from rl_training.algorithms.td3 import TD3, TD3Config


def with_next(rows: int = 32) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    known = rng.random(rows) < 0.7
    return {**batch(rows), "next_actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32), "next_known": known}


def test_rebrac_by_hand() -> None:
    data = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    assert distances(torch.zeros(2, 2), data).tolist() == [2.0, 0.0]  # sums, where TD3+BC takes means
    loss = rebrac_loss(torch.tensor([2.0, -4.0]), torch.zeros(2, 2), data, beta=0.5)
    assert float(loss) == pytest.approx(0.5 * 0.5 * 2.0 - (-1.0) / 3.0)


def test_rebrac_without_penalties_is_td3_with_the_smaller_value() -> None:
    class Smaller(TD3):
        def loss_of_actor(self, rows: Transitions) -> Tensor:
            return cast(Tensor, -self.critics(rows.obs, self.actor(rows.obs)).amin(0).mean())

    plain, free = Smaller(context(), TD3Config()), ReBRAC(context(), ReBRACConfig(actor_beta=0.0, critic_beta=0.0))
    for algorithm in (plain, free):
        algorithm.critics_gradient(algorithm.prepare(with_next()))
    one, other = (algorithm.learners["critics"].parameters.grad.clone() for algorithm in (plain, free))
    assert torch.equal(one, other)
    rows = plain.prepare(batch())
    plain.actor_gradient(rows)
    free.actor_gradient(free.prepare(batch()))
    scale = free.critics(rows.obs, free.actor(rows.obs)).amin(0).detach().abs().mean()
    one, other = plain.learners["actor"].parameters.grad, free.learners["actor"].parameters.grad * scale
    assert float(one.abs().max()) > 1e-6
    torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


def test_targets_of_rebrac_fall_with_the_distance_where_the_next_action_is_known() -> None:
    rows = with_next()
    options = {"target_noise": 0.0}
    free, held = (ReBRAC(context(), ReBRACConfig(critic_beta=beta, **options)) for beta in (0.0, 2.0))
    prepared = held.prepare(rows)
    with torch.no_grad():
        lower = free.targets_of(prepared) - held.targets_of(prepared)
        actions = held.targets["actor"].network(prepared.next_obs)
    assert prepared.next_actions is not None
    expected = 2.0 * 0.99 * distances(actions, prepared.next_actions)
    used = torch.from_numpy(rows["next_known"] & ~rows["terminated"])
    torch.testing.assert_close(lower[used], expected[used], rtol=1e-4, atol=1e-5)
    assert float(lower[~used].abs().max()) == 0.0
    assert bool(used.any())
    assert bool((~used).any())


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_rebrac_moves_from_the_mean_to_the_better_side(seed: int) -> None:
    options: dict[str, Any] = {"tau": 0.05}
    imitating, learning = (
        learnt_action(ReBRAC, ReBRACConfig(actor_beta=beta, **options), seed) for beta in (100.0, 0.05)
    )
    assert abs(imitating) < 0.15
    assert learning > 0.3


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_awac_finds_the_better_side(seed: int) -> None:
    hparams = AWACConfig(learning_rate=3e-3, temperature=1.0, tau=0.05)
    assert abs(learnt_action(AWAC, hparams, seed) - BEST) < 0.2


def test_awac_compares_with_a_sample_of_its_own_policy() -> None:
    """An actor that does nothing but the dataset's action has no advantage to gain."""
    algorithm = AWAC(context(), AWACConfig())
    rows = algorithm.prepare(batch())
    algorithm.actor.log_std.data.fill_(-20.0)
    with torch.no_grad():
        rows.actions = algorithm.actor.mean(rows.obs)
    assert float(algorithm.advantages_of(rows).abs().max()) < 1e-5
