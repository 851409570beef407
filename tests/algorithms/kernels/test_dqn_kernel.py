"""The hand-written gradient of DQN against autograd through `dqn_loss`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.kernels.dqn import FastKernel
from rl_training.algorithms.off_policy import ReferenceKernel
from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config

CARTPOLE, TAXI = "CartPole-v1", "Taxi-v4"
ROWS = 24


def algorithm(env_id: str = CARTPOLE, activation: str = "relu", **hparams: Any) -> DQN:
    critic = {"hidden_dims": [16, 8], "activation": activation}
    config = {
        "algo": "dqn",
        "env_id": env_id,
        "buffer": {"size": 64},
        "hparams": hparams,
        "network": {"critic": critic},
    }
    trainer = build_trainer(parse_config(config))
    trainer.close()
    built = trainer.algorithm
    assert isinstance(built, DQN)
    return built


def batch(dqn: DQN, *, weights: bool) -> dict[str, Any]:
    """Errors on both sides of the Huber loss's bend, both kinds of ends, some rows after several steps."""
    rng = np.random.default_rng(3)
    discrete = dqn.ctx.observation_space.shape == ()
    draw = (
        (lambda: rng.integers(500, size=ROWS)) if discrete else (lambda: rng.normal(size=(ROWS, 4)).astype(np.float32))
    )
    rows = {
        "obs": draw(),
        "next_obs": draw(),
        "actions": rng.integers(2, size=ROWS),
        "rewards": rng.normal(0.0, 2.0, ROWS).astype(np.float32),
        "terminated": rng.random(ROWS) < 0.3,
        "discounts": rng.uniform(0.9, 1.0, ROWS).astype(np.float32),
    }
    return {**rows, "weights": rng.random(ROWS).astype(np.float32)} if weights else rows


def apart(dqn: DQN) -> None:
    """Move the online network away from its target."""
    noise = np.random.default_rng(8).normal(0.0, 0.2, len(dqn.learners["q"].parameters.values))
    dqn.learners["q"].parameters.values += torch.from_numpy(noise.astype(np.float32))


def gradient(dqn: DQN, rows: dict[str, Any]) -> tuple[Tensor, dict[str, float], Any]:
    step = dqn.gradient(dqn.prepare(rows))
    metrics = {"loss": step.loss, "value_mean": step.value_mean, "td_error": step.td_error}
    left = dqn.learners["q"].parameters.grad.clone()
    return left, {name: float(value) for name, value in metrics.items()}, step.errors.numpy()


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("env_id", "activation"), [(CARTPOLE, "relu"), (CARTPOLE, "tanh"), (TAXI, "relu")])
def test_gradient_and_losses_are_those_of_autograd(env_id: str, activation: str, double: bool, weights: bool):
    dqn = algorithm(env_id, activation, double=double)
    apart(dqn)
    rows = batch(dqn, weights=weights)
    by_hand, metrics, errors = gradient(dqn, rows)
    assert isinstance(dqn.kernel, FastKernel)
    dqn.kernel = dqn.reference_kernel()
    by_autograd, expected, expected_errors = gradient(dqn, rows)
    assert float(by_autograd.abs().max()) > 1e-3
    assert np.min(errors) < 1.0 < np.max(errors)
    torch.testing.assert_close(by_hand, by_autograd, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(errors, expected_errors, rtol=1e-5, atol=1e-6)
    assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_updates_agree_to_rounding():
    """Weights and targets after twenty updates on the same batches: 1e-5."""
    fast, reference = algorithm(target_every_updates=3), algorithm(target_every_updates=3, kernel="reference")
    for _ in range(20):
        rows = batch(fast, weights=False)
        fast.update(rows)
        reference.update(rows)
    weights = [case.learners["q"].parameters.values for case in (fast, reference)]
    torch.testing.assert_close(*weights, rtol=0, atol=1e-5)
    assert not torch.equal(*weights), "the two ways round differently; equal bits mean that one was not taken"


@pytest.mark.parametrize(
    "option", [{"dueling": True}, {"noisy": True}, {"distribution": "c51"}, {"kernel": "reference"}]
)
def test_what_the_kernel_does_not_compute_takes_the_reference(option: dict[str, Any]):
    assert isinstance(algorithm(**option).kernel, ReferenceKernel)


def test_unknown_activations_take_the_reference():
    assert isinstance(algorithm(activation="gelu").kernel, ReferenceKernel)


class OwnLoss(DQN):
    def losses(self, predicted: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return super().losses(predicted, targets)


def test_a_loss_of_ones_own_is_used():
    built = algorithm()
    assert isinstance(OwnLoss(built.ctx, built.hp).kernel, ReferenceKernel)
