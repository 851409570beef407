"""Decision Transformer: what a prediction depends on, acting step by step, and that it reaches the return asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.offline.dt import DecisionTransformer, DTConfig, sequence_loss
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, MemoryConfig, NetworkConfig
from rl_training.seeding import Streams
from rl_training.types import REWARD, BoxSpec, DiscreteSpec

ONE = BoxSpec(np.full(1, -1.0, np.float32), np.full(1, 1.0, np.float32), np.dtype(np.float32))
MEMORY = MemoryConfig("transformer", size=16, layers=2, heads=2, window=5)
NETWORK = NetworkConfig(actor=BackboneConfig(hidden_dims=(), memory=MEMORY))


def build(action_space: Any, seed: int = 0, **options: Any) -> DecisionTransformer:
    ctx = BuildContext(ONE, action_space, network=NETWORK, streams=Streams(seed))
    return DecisionTransformer(ctx, DTConfig(**{"warmup_updates": 0, **options}))


def test_padded_steps_do_not_count() -> None:
    outputs, actions = torch.tensor([[[1.0], [5.0]]]), torch.tensor([[[0.0], [0.0]]])
    assert float(sequence_loss(outputs, actions, torch.tensor([[1.0, 0.0]]))) == 1.0
    logits = torch.log_softmax(torch.tensor([[[0.0, 0.0], [9.0, 0.0]]]), 2)
    loss = sequence_loss(logits, torch.tensor([[1, 1]]), torch.tensor([[1.0, 0.0]]))
    assert float(loss) == pytest.approx(float(np.log(2.0)))


def test_a_prediction_depends_on_what_came_before_and_not_on_its_own_action() -> None:
    model, rng = build(ONE).model, np.random.default_rng(0)
    returns, obs, actions = (
        torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for shape in ((1, 4), (4, 1), (1, 4, 1))
    )
    with torch.no_grad():
        before = model(returns, obs, actions)
        other_action, other_return, other_obs = actions.clone(), returns.clone(), obs.clone()
        other_action[0, 2], other_return[0, 2], other_obs[2] = 3.0, 3.0, 3.0
        by_action, by_return = model(returns, obs, other_action), model(other_return, obs, actions)
        by_obs = model(returns, other_obs, actions)
    assert torch.equal(by_action[0, :3], before[0, :3])
    assert not torch.equal(by_action[0, 3], before[0, 3])
    for changed in (by_return, by_obs):
        assert torch.equal(changed[0, :2], before[0, :2])
        assert not torch.equal(changed[0, 2], before[0, 2])


@pytest.mark.parametrize("action_space", [ONE, DiscreteSpec(3)], ids=["box", "discrete"])
def test_acting_step_by_step_is_the_model_on_the_last_steps(action_space: Any) -> None:
    """Eight steps with a window of five; each row is the same alone, and a new episode forgets the old one."""
    algorithm, rng = build(action_space, target_return=6.0), np.random.default_rng(1)
    policy, window = algorithm.policy, MEMORY.window
    policy.return_scale = 2.0
    carry, seen, wanted, done = policy.initial_carry(2), [], [], []
    rewards = np.zeros(2, np.float32)
    for step in range(8):
        obs = rng.normal(size=(2, 1)).astype(np.float32)
        carry[REWARD] = rewards
        result = policy.act(obs, carry, np.full(2, step == 0), rng, deterministic=True)
        wanted.append(np.full(2, 3.0, np.float32) if step == 0 else wanted[-1] - rewards / 2.0)
        seen.append(obs)
        last = slice(max(0, step + 1 - window), None)
        taken = np.array([*done, np.zeros((2, algorithm.model.action_size), np.float32)])[last]
        with torch.no_grad():
            outputs = algorithm.model(
                torch.from_numpy(np.array(wanted)[last].T.copy()),
                torch.from_numpy(np.array(seen)[last].transpose(1, 0, 2).reshape(-1, 1)),
                torch.from_numpy(taken.transpose(1, 0, 2).copy()),
            )[:, -1].numpy()
        if isinstance(action_space, DiscreteSpec):
            np.testing.assert_array_equal(result.actions, outputs.argmax(1))
            done.append(np.eye(3, dtype=np.float32)[result.actions])
        else:
            np.testing.assert_allclose(result.actions, outputs, atol=1e-5)
            done.append(result.actions)
        carry, rewards = result.carry, rng.normal(size=2).astype(np.float32)
    again = policy.act(seen[0], {**carry}, np.ones(2, bool), rng, deterministic=True)
    fresh = policy.act(seen[0], policy.initial_carry(2), np.ones(2, bool), rng, deterministic=True)
    np.testing.assert_array_equal(again.actions, fresh.actions)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_return_asked_for_decides_on_the_action(seed: int) -> None:
    """Action -0.5 returned 0 and 0.5 returned 1; both are done as asked."""
    algorithm, rng = build(ONE, seed, learning_rate=3e-3, batch_size=32), np.random.default_rng(seed)
    algorithm.aim_at(np.array([0.0, 1.0]))
    for _ in range(300):
        good = rng.random(32) < 0.5
        batch = {
            "obs": np.ones((32, 1, 1), np.float32),
            "actions": np.where(good, 0.5, -0.5).astype(np.float32)[:, None, None],
            "rewards": good.astype(np.float32)[:, None],
            "returns_to_go": good.astype(np.float32)[:, None],
            "valid": np.ones((32, 1), bool),
        }
        algorithm.update(batch)
    policy, first = algorithm.policy, np.ones(1, bool)
    assert policy.target_return == 1.0
    for target, action in ((1.0, 0.5), (0.0, -0.5)):
        policy.target_return = target
        result = policy.act(np.ones((1, 1), np.float32), policy.initial_carry(1), first, rng, deterministic=True)
        assert abs(float(result.actions[0, 0]) - action) < 0.15
