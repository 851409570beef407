"""Returns, weights and losses of Dreamer against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dreamer_cases import box
from torch import Tensor

from rl_training.algorithms.world_models.actors import DiscreteActions, RealActions
from rl_training.algorithms.world_models.dreamer import (
    actor_losses,
    imagined_returns,
    replayed_returns,
    trajectory_weights,
    value_losses,
)
from rl_training.algorithms.world_models.world_model import Arrivals, continue_loss, divergence_losses, mean_over
from rl_training.dynamics.rssm import RSSM
from rl_training.models.networks import polyak_update
from rl_training.types import DiscreteSpec


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)[:, None]


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
    found = imagined_returns(REWARDS, column(*discounts), VALUES, share)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-9)


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
    nothing = torch.zeros(5, 1)
    steps = Arrivals(nothing, nothing, REWARDS, nothing, *flags, nothing, {})
    found = replayed_returns(steps, VALUES, 0.9, 0.95)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-9)


def test_trajectory_weights_count_the_root() -> None:
    found = trajectory_weights(column(0.97, 0.9, 0.9, 0.5, 0.9))[:, 0]
    np.testing.assert_allclose(found, [0.97, 0.873, 0.7857, 0.39285, 0.353565], atol=1e-12)
    assert not trajectory_weights(column(0.0, 0.9, 0.9)).any(), "nothing is learnt behind the end of an episode"


def test_continue_loss() -> None:
    found = continue_loss(column(2.0, 2.0), column(0.0, 1.0), 1.0 - 1.0 / 333.0)[:, 0]
    np.testing.assert_allclose(found, [0.13293401704897861, 2.1269280110429727], atol=1e-12)


def test_free_nats_are_per_step_and_over_all_latents() -> None:
    """Two latents of 0.446 + 0.430 nats are below one nat: loss 1.1, gradient exactly 0; eight count in full."""
    peaked, uniform = [0.7, 0.1, 0.1, 0.1], [0.25] * 4
    for copies, expected in ((1, 1.1), (4, 3.8529020951295196)):
        dynamics = RSSM(2, 2, np.random.default_rng(0), deter=4, hidden=4, stoch=2 * copies, classes=4)
        posterior = torch.tensor([peaked, uniform] * copies, dtype=torch.float64).log().requires_grad_()
        prior = torch.tensor([uniform, peaked] * copies, dtype=torch.float64).log().requires_grad_()
        losses = divergence_losses(dynamics, {"logits": posterior}, {"logits": prior}, 1.0)
        total = 1.0 * losses[0] + 0.1 * losses[1]
        assert total.item() == pytest.approx(expected, abs=1e-9)
        total.backward()
        assert bool(posterior.grad.any()) is bool(prior.grad.any()) is (copies > 1)  # type: ignore[union-attr]


def test_free_nats_come_before_the_mean() -> None:
    assert float(mean_over(torch.tensor([0.2, 3.0]).clamp(min=1.0), torch.ones(2))) == 2.0


def test_continuous_policy() -> None:
    actions = RealActions(box(1))
    outputs = torch.tensor([[0.3, 0.0]], dtype=torch.float64)
    mean, std = actions.moments(outputs)
    logprob, entropy = actions.logprob_entropy(outputs, torch.tensor([[0.5]], dtype=torch.float64))
    found = [float(x) for x in (mean, std, entropy, logprob)]
    np.testing.assert_allclose(
        found, [0.2913126124515909, 0.8927173701800941, 1.305453290244865, -0.8327766712871021], atol=1e-12
    )


def test_discrete_policy_mixes_in_a_uniform_one_everywhere() -> None:
    actions = DiscreteActions(DiscreteSpec(4), 0.01)
    outputs = torch.tensor([0.0, 1.0, 2.0, -1.0], dtype=torch.float64)
    expected = [0.0887728756, 0.2370139899, 0.6399751173, 0.0342380172]
    found = [actions.logprob_entropy(outputs, row)[0].exp().item() for row in torch.eye(4, dtype=torch.float64)]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    entropy = actions.logprob_entropy(outputs, torch.eye(4, dtype=torch.float64)[0])[1]
    assert float(entropy) == pytest.approx(0.9573638013923387, abs=1e-9)
    draws = actions.sample(
        outputs.expand(40_000, 4), torch.from_numpy(actions.draw((40_000,), np.random.default_rng(0)))
    )
    np.testing.assert_allclose(draws.mean(0), expected, atol=0.01)


def test_actor_loss_follows_the_advantage_alone() -> None:
    logprobs, advantages = column(-1.0, -2.0).requires_grad_(), column(3.0, -0.5).requires_grad_()
    loss = actor_losses(logprobs, column(0.5, 0.25), advantages, 0.1)
    np.testing.assert_allclose(loss.detach()[:, 0], [2.95, -1.025])
    loss.sum().backward()
    assert advantages.grad is None
    np.testing.assert_allclose(logprobs.grad[:, 0], [-3.0, 0.5])  # type: ignore[index]


def test_the_slow_critic_follows_by_a_fiftieth() -> None:
    critic, slow = torch.nn.Linear(1, 1, bias=False).double(), torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.ones_(critic.weight)
    torch.nn.init.zeros_(slow.weight)
    known = {1: 0.02, 10: 0.1829271931124533, 50: 0.6358303199128832}
    for update in range(1, 51):
        polyak_update(critic, slow, 0.02)
        if update in known:
            assert slow.weight.item() == pytest.approx(known[update], abs=1e-12)


def test_value_loss_is_the_cross_entropy_of_return_and_slow_value() -> None:
    bins = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=torch.float64)
    logprobs = torch.log_softmax(torch.tensor([0.0, 1.0, 2.0, 0.0, -1.0], dtype=torch.float64), -1)
    value = torch.tensor(0.25, dtype=torch.float64)
    once = value_losses(logprobs, value, torch.tensor(0.0, dtype=torch.float64), bins, 0.0)
    assert float(once) == pytest.approx(1.0237440658193386, abs=1e-12)
    assert float(value_losses(logprobs, value, value, bins, 1.0)) == pytest.approx(2 * 1.0237440658193386, abs=1e-12)
