"""Losses of the offline algorithms: numbers by hand, and the limits in which one becomes another."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from offline_cases import SMALL, batch, context

from rl_training.algorithms.offline.bc import cloning_loss
from rl_training.algorithms.offline.iql import IQL, IQLConfig, advantage_weights, expectile_loss
from rl_training.algorithms.offline.rebrac import ReBRAC, ReBRACConfig
from rl_training.algorithms.offline.td3_bc import TD3BC, TD3BCConfig, td3_bc_loss
from rl_training.algorithms.td3 import TD3, TD3Config
from rl_training.config.schema import BackboneConfig, MemoryConfig, NetworkConfig
from rl_training.types import ConfigError


def test_cloning_averages_over_batch_and_dimensions() -> None:
    loss = cloning_loss(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 2.0]]))
    assert float(loss) == 1.25


def test_td3_bc_by_hand() -> None:
    loss = td3_bc_loss(torch.tensor([2.0, -4.0]), torch.zeros(2, 1), torch.ones(2, 1), alpha=3.0)
    assert float(loss) == pytest.approx(-3.0 / 3.0 * -1.0 + 1.0)


def test_td3_bc_tends_to_td3_as_imitation_vanishes() -> None:
    alpha = 1e6
    plain, mixed = TD3(context(), TD3Config(kernel="reference")), TD3BC(context(), TD3BCConfig(alpha=alpha))
    rows = plain.prepare(batch())
    plain.actor_gradient(rows)
    mixed.actor_gradient(mixed.prepare(batch()))
    obs = rows.obs
    scale = float(mixed.critics(obs, mixed.actor(obs))[0].detach().abs().mean()) / alpha
    one, other = plain.learners["actor"].parameters.grad, mixed.learners["actor"].parameters.grad * scale
    assert float(one.abs().max()) > 1e-6
    torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


def test_td3_bc_gives_no_gradient_through_the_scale() -> None:
    values = torch.tensor([2.0, 4.0], requires_grad=True)
    td3_bc_loss(values, torch.zeros(2, 1), torch.zeros(2, 1), alpha=3.0).backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([-0.5, -0.5])


def test_expectile_of_one_half_is_half_the_mean_squared_error() -> None:
    u = torch.randn(64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(expectile_loss(u, 0.5), 0.5 * u.square().mean())
    assert float(expectile_loss(torch.tensor([1.0, -1.0]), 0.9)) == pytest.approx(0.5)
    assert float(expectile_loss(torch.tensor([-2.0]), 0.9)) == pytest.approx(0.4)


def test_advantage_weights_are_cut_before_they_overflow() -> None:
    weights = advantage_weights(torch.tensor([0.0, 1.0, 1e6]), beta=3.0, largest=100.0)
    assert weights.tolist() == pytest.approx([1.0, float(np.exp(3.0)), 100.0])


def test_iql_takes_values_from_before_they_move() -> None:
    """Advantages and targets do not depend on how far the state value steps in the same update."""
    slow, fast = (IQL(context(), IQLConfig(actor_decay=False)) for _ in range(2))
    value = fast.learners["value"]
    apply = value.apply
    value.apply = lambda loss, rate, suspects: apply(loss, 100 * rate, suspects)  # type: ignore[method-assign]
    for algorithm in (slow, fast):
        algorithm.update(batch())
    for name in ("actor", "critics"):
        assert torch.equal(slow.learners[name].parameters.values, fast.learners[name].parameters.values)
    assert not torch.equal(slow.learners["value"].parameters.values, fast.learners["value"].parameters.values)


def test_the_actor_of_iql_stops_at_the_end_of_the_run() -> None:
    ctx = context(total_timesteps=100)
    algorithm = IQL(ctx, IQLConfig(learning_rate=1.0))
    ctx.progress.advance(env_steps=50)
    assert algorithm.rate("actor") == pytest.approx(0.5)
    ctx.progress.advance(env_steps=50)
    assert algorithm.rate("actor") == pytest.approx(0.0)
    assert algorithm.rate("critics") == 1.0


def test_memory_is_refused_where_single_transitions_are_learnt_from() -> None:
    backbone = BackboneConfig(type="gru", hidden_dims=(8,), memory=MemoryConfig(type="gru"))
    ctx = replace(context(), network=NetworkConfig(actor=backbone, critic=SMALL.critic))
    with pytest.raises(ConfigError, match="its networks have no memory"):
        ReBRAC(ctx, ReBRACConfig())


def test_td3_bc_updates_as_a_plain_reference() -> None:
    """Two updates beside the algorithm written out with autograd and torch's Adam: critics at both, actor and targets
    at the second; a truncated step bootstraps, a terminated one does not."""
    rate, gamma, tau, alpha = 1e-2, 0.9, 0.3, 2.5
    ours = TD3BC(context(), TD3BCConfig(learning_rate=rate, gamma=gamma, tau=tau, alpha=alpha, target_noise=0.0))
    actor, critics = deepcopy(ours.actor), deepcopy(ours.critics)
    old_actor, old_critics = deepcopy(actor), deepcopy(critics)
    optimizers = [torch.optim.Adam(network.parameters(), rate) for network in (actor, critics)]
    rows = batch() | {"truncated": np.arange(32) % 2 == 0}
    obs, next_obs, actions, rewards = (torch.as_tensor(rows[k]) for k in ("obs", "next_obs", "actions", "rewards"))
    alive = 1.0 - torch.as_tensor(rows["terminated"]).float()
    for update in (1, 2):
        ours.update(rows)
        with torch.no_grad():
            targets = rewards + gamma * alive * old_critics(next_obs, old_actor(next_obs)).min(0).values
        loss = (critics(obs, actions) - targets).square().mean(1).sum()
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        if update == 2:
            chosen = actor(obs)
            values = critics(obs, chosen)[0]
            loss = -alpha / values.abs().mean().item() * values.mean() + (chosen - actions).square().mean()
            optimizers[0].zero_grad()
            loss.backward()
            optimizers[0].step()
            for old, new in ((old_actor, actor), (old_critics, critics)):
                for stale, current in zip(old.parameters(), new.parameters(), strict=True):
                    stale.data.lerp_(current.data, tau)
    pairs = ((ours.actor, actor), (ours.critics, critics))
    lagging = ((ours.targets["actor"].network, old_actor), (ours.targets["critics"].network, old_critics))
    for one, other in (*pairs, *lagging):
        for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
