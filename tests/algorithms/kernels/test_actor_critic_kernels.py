"""The hand-written gradients of SAC, TD3 and DDPG against autograd through their losses."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.algorithms.off_policy import ReferenceKernel
from rl_training.algorithms.sac import SAC
from rl_training.algorithms.td3 import TD3
from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config

ROWS = 24


def algorithm(algo: str, kernel: str = "auto", *, activation: str = "relu", **config: Any) -> SAC | TD3:
    network = {"hidden_dims": [16, 8], "activation": activation}
    layout = {
        "algo": algo,
        "env_id": "Reacher-v5",
        "buffer": {"size": 64},
        "network": {"actor": network, "critic": network},
    }
    hparams = {"kernel": kernel, **config.pop("hparams", {})}
    trainer = build_trainer(parse_config({**layout, **config, "hparams": hparams}))
    trainer.close()
    built = trainer.algorithm
    assert isinstance(built, SAC | TD3)
    return built


def is_reference(learnt: SAC | TD3) -> bool:
    return isinstance(learnt.kernel, ReferenceKernel)


def batch(*, weights: bool) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    rows = {
        "obs": rng.normal(size=(ROWS, 10)).astype(np.float32),
        "next_obs": rng.normal(size=(ROWS, 10)).astype(np.float32),
        "actions": rng.uniform(-1.0, 1.0, (ROWS, 2)).astype(np.float32),
        "rewards": rng.normal(0.0, 2.0, ROWS).astype(np.float32),
        "terminated": rng.random(ROWS) < 0.3,
        "discounts": rng.uniform(0.9, 1.0, ROWS).astype(np.float32),
    }
    return {**rows, "weights": rng.random(ROWS).astype(np.float32)} if weights else rows


def stirred(learnt: SAC | TD3) -> SAC | TD3:
    """Weights of every size, so that actions saturate, critics differ, and targets lag."""
    rng = np.random.default_rng(8)
    for learner in learnt.learners.values():
        values = learner.parameters.values
        values += torch.from_numpy(rng.normal(0.0, 0.4, len(values)).astype(np.float32))
    return learnt


def gradients(learnt: SAC | TD3, rows: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, float], Any]:
    """Of two updates, the second of which moves every actor: the gradients it leaves, its metrics and its errors."""
    learnt.update(rows)
    result = learnt.update(rows)
    left = {name: learner.parameters.grad.clone() for name, learner in learnt.learners.items()}
    return left, {name: float(value) for name, value in result.metrics.items()}, result.priorities


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("algo", ["sac", "td3", "ddpg"])
def test_gradients_and_losses_are_those_of_autograd(algo: str, activation: str, weights: bool) -> None:
    rows = batch(weights=weights)
    fast, slow = (stirred(algorithm(algo, kernel, activation=activation)) for kernel in ("auto", "reference"))
    assert not is_reference(fast)
    assert is_reference(slow)
    by_hand, metrics, errors = gradients(fast, rows)
    by_autograd, expected, expected_errors = gradients(slow, rows)
    for name, gradient in by_autograd.items():
        assert float(gradient.abs().max()) > 1e-3
        torch.testing.assert_close(by_hand[name], gradient, rtol=1e-4, atol=1e-5)
    assert metrics == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert (errors is not None) == weights
    if weights:
        np.testing.assert_allclose(errors, expected_errors, rtol=1e-4, atol=1e-5)


def test_a_fixed_temperature_is_a_number() -> None:
    fast, slow = (stirred(algorithm("sac", kernel, hparams={"alpha": 0.2})) for kernel in ("auto", "reference"))
    by_hand, by_autograd = (gradients(learnt, batch(weights=False))[0] for learnt in (fast, slow))
    torch.testing.assert_close(by_hand["actor"], by_autograd["actor"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_other_networks_take_the_reference(algo: str) -> None:
    plain = {"hidden_dims": [16, 8], "activation": "relu"}
    for odd in ({"layer_norm": True}, {"activation": "elu"}):
        for part in ("actor", "critic"):
            assert is_reference(algorithm(algo, network={"actor": plain, "critic": plain, part: {**plain, **odd}}))


def test_enumerated_actions_take_the_reference() -> None:
    assert is_reference(algorithm("sac", env_id="CartPole-v1"))


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_dict_observations_are_encoded_alike(algo: str) -> None:
    rng = np.random.default_rng(5)
    space = gym.make("RLProbe/PointReach-v0").observation_space
    assert isinstance(space, gym.spaces.Dict)
    rows = batch(weights=False)
    for name in ("obs", "next_obs"):
        rows[name] = {key: rng.normal(size=(ROWS, *box.shape)).astype(np.float32) for key, box in space.items()}
    fast, slow = (stirred(algorithm(algo, kernel, env_id="RLProbe/PointReach-v0")) for kernel in ("auto", "reference"))
    assert not is_reference(fast)
    by_hand, by_autograd = (gradients(learnt, rows)[0] for learnt in (fast, slow))
    for name, gradient in by_autograd.items():
        torch.testing.assert_close(by_hand[name], gradient, rtol=1e-4, atol=1e-5)
