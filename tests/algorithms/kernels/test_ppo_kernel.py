"""The hand-written gradient of PPO against autograd through `ppo_loss`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.kernels.ppo import FastKernel
from rl_training.algorithms.ppo import PPO, Coefficients, ReferenceKernel
from rl_training.algorithms.rollout import Rollout
from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import parse_config
from rl_training.types import Batch, UpdateResult

CARTPOLE, PENDULUM, TAXI = "CartPole-v1", "Pendulum-v1", "Taxi-v4"


def trainer(env_id: str = CARTPOLE, activation: str = "tanh", **hparams: Any) -> Any:
    backbone = {"hidden_dims": [16, 8], "activation": activation}
    return build_trainer(
        parse_config(
            {
                "algo": "ppo",
                "env_id": env_id,
                "env": {"num_envs": 3},
                "hparams": {"num_steps": 32, **hparams},
                "network": {"actor": backbone, "critic": backbone},
            }
        )
    )


def gradients(ppo: PPO, rows: Rollout, coefficients: Coefficients) -> tuple[torch.Tensor, dict[str, float]]:
    ppo.optimizer.zero_grad()
    losses = ppo.gradient(rows, coefficients)
    return ppo.policy.parameters.grad.clone(), {name: float(value) for name, value in losses.items()}


@pytest.mark.parametrize("clip_vf", [None, 0.1])
@pytest.mark.parametrize("ent_coef", [0.0, 0.05])
@pytest.mark.parametrize(
    ("env_id", "activation"), [(CARTPOLE, "tanh"), (CARTPOLE, "relu"), (PENDULUM, "tanh"), (TAXI, "relu")]
)
def test_gradient_and_losses_are_those_of_autograd(
    env_id: str, activation: str, ent_coef: float, clip_vf: float | None
):
    fast = trainer(env_id, activation, normalize_advantage=clip_vf is None)
    fast.train_step()
    ppo = fast.algorithm
    rollout = ppo.prepare(fast.buffer.as_batch())
    rng = np.random.default_rng(5)
    noise = torch.from_numpy(rng.normal(0.0, 0.3, (3, len(rollout))).astype(np.float32))
    # ratios on both sides of the clip, values that have moved, advantages of both signs
    moved = replace(
        rollout,
        logprobs=rollout.logprobs + noise[0],
        values=rollout.values + noise[1],
        advantages=rollout.advantages - rollout.advantages.mean() + noise[2],
    )
    coefficients = Coefficients(0.2, ent_coef, 0.5, clip_vf)
    for rows in (moved, moved.rows(torch.arange(7)), moved.rows(torch.arange(1))):
        by_hand, losses = gradients(ppo, rows, coefficients)
        kernel, ppo.kernel = ppo.kernel, ppo.reference_kernel()
        by_autograd, expected = gradients(ppo, rows, coefficients)
        ppo.kernel = kernel
        assert isinstance(kernel, FastKernel)
        assert rows is not moved or float(by_autograd.abs().max()) > 1e-3
        torch.testing.assert_close(by_hand, by_autograd, rtol=1e-5, atol=1e-6)
        assert losses == pytest.approx(expected, rel=1e-5, abs=1e-6)
    fast.close()


@pytest.mark.parametrize("env_id", [CARTPOLE, PENDULUM])
def test_a_training_step_agrees_to_rounding(env_id: str):
    """Weights after whole updates on the same rollout: 1e-5."""
    with pinned_threads(1):
        fast, reference = trainer(env_id), trainer(env_id, kernel="reference")
        fast.train_step()
        reference.train_step()
    weights = [case.algorithm.policy.parameters.values for case in (fast, reference)]
    torch.testing.assert_close(*weights, rtol=0, atol=1e-5)
    assert not torch.equal(*weights), "the two ways round differently; equal bits mean that one was not taken"
    for case in (fast, reference):
        case.close()


class OwnLoss(PPO):
    def loss(self, rollout: Rollout, coefficients: Coefficients) -> dict[str, torch.Tensor]:
        return super().loss(rollout, coefficients)


@pytest.mark.parametrize(
    "change",
    [
        {"hparams": {"kernel": "reference"}},
        {"hparams": {"grad_accumulation": 2}},
        {"network": {"shared": True}},
        {"network": {"actor": {"layer_norm": True}}},
        {"network": {"actor": {"activation": "gelu"}}},
        {"hparams": {"use_sde": True}, "env_id": PENDULUM},
    ],
)
def test_what_the_kernel_does_not_compute_takes_the_reference(change: dict[str, Any]):
    built: Any = build_trainer(parse_config({"algo": "ppo", "env_id": CARTPOLE, **change}))
    assert isinstance(built.algorithm.kernel, ReferenceKernel)
    built.close()


def test_a_loss_of_ones_own_is_used():
    built: Any = trainer()
    own = OwnLoss(built.algorithm.ctx, built.algorithm.hp)
    assert isinstance(built.algorithm.kernel, FastKernel)
    assert isinstance(own.kernel, ReferenceKernel)
    built.close()


def test_updates_are_the_same_twice():
    """The kernel keeps nothing between minibatches: the same rollout from the same state gives the same bits."""
    built: Any = trainer()
    built.train_step()
    batch: Batch = built.buffer.as_batch()
    state = {"policy": built.algorithm.policy.state_dict(), "algorithm": built.algorithm.state_dict()}
    state = {part: copied(tree) for part, tree in state.items()}
    results: list[UpdateResult] = []
    weights: list[bytes] = []
    for _ in range(2):
        built.algorithm.policy.load_state_dict(state["policy"])
        built.algorithm.load_state_dict(state["algorithm"])
        results.append(built.algorithm.update(batch))
        weights.append(built.algorithm.policy.parameters.values.numpy().tobytes())
    assert all(one == two for one, two in pairwise(weights))
    assert float(results[0].metrics["loss"]) == float(results[1].metrics["loss"])
    built.close()


def copied(tree: Any) -> Any:
    return {key: copied(value) for key, value in tree.items()} if isinstance(tree, dict) else np.copy(tree)[()]
