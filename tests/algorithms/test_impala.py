"""IMPALA: recorded log-probabilities, the ratio to the learning policy, the lag, and A2C where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from overlap_cases import state_hash

from rl_training.algorithms.impala import BEHAVIOUR, Impala, importance_ratios
from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config
from rl_training.types import ConfigError

GRU = {name: {"hidden_dims": [8], "memory": {"type": "gru", "size": 8}} for name in ("actor", "critic")}
SMALL = {name: {"hidden_dims": [8]} for name in ("actor", "critic")}
CASES: dict[str, dict[str, Any]] = {
    "discrete": {"env_id": "CartPole-v1"},
    "box": {"env_id": "Pendulum-v1"},
    "gsde": {"env_id": "Pendulum-v1", "hparams": {"use_sde": True}},
    "masks": {"env_id": "RLProbe/MaskedArms-v0"},
    "multi": {"env_id": "RLProbe/MultiDiscrete-v0"},
    "binary": {"env_id": "RLProbe/MultiBinary-v0"},
    "memory": {"env_id": "CartPole-v1", "network": GRU},
    "normalised": {"env_id": "Pendulum-v1", "env": {"normalize_obs": True, "normalize_reward": True}},
}


def trainer(case: str = "discrete", algo: str = "impala", **hparams: Any) -> Any:
    given = CASES[case]
    return build_trainer(
        parse_config(
            {
                "algo": algo,
                "seed": 3,
                "network": SMALL,
                "logging": {"terminal": False},
                "training": {"num_eval_episodes": 0},
                **given,
                "env": {"num_envs": 4, **given.get("env", {})},
                "hparams": {"num_steps": 8, **given.get("hparams", {}), **hparams},
            }
        )
    )


@pytest.mark.parametrize("case", CASES)
def test_log_probabilities_are_those_of_the_moment_of_acting(case: str) -> None:
    """The same as the learner computes for the whole rollout with the same weights, up to rounding."""
    built = trainer(case)
    built.train_step()  # statistics have moved once
    built.collector.collect(8, built.buffer)
    batch = built.buffer.as_batch()
    rollout = built.algorithm.prepare(batch)
    recorded = batch[BEHAVIOUR].reshape(-1)
    np.testing.assert_allclose(rollout.logprobs.numpy(), recorded, atol=2e-5)
    built.close()


def test_without_lag_it_takes_the_steps_of_a2c() -> None:
    """Ratios are 1 up to rounding, where V-trace is the n-step return."""
    common = {"ent_coef": 0.0, "learning_rate": 1e-3, "gae_lambda": 1.0}
    ours, theirs = trainer(**common), trainer(algo="a2c", **common)
    for _ in range(3):
        one, other = ours.train_step(), theirs.train_step()
        assert float(one["train/policy_loss"]) == pytest.approx(float(other["train/policy_loss"]), abs=1e-4)
        assert one["train/ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    for mine, its in zip(ours.algorithm.network.parameters(), theirs.algorithm.network.parameters(), strict=True):
        torch.testing.assert_close(mine, its, atol=1e-4, rtol=1e-3)
    for built in (ours, theirs):
        built.close()


@pytest.mark.parametrize("lag", [1, 3])
def test_the_acting_policy_is_behind_by_as_many_updates(lag: int) -> None:
    built = trainer("normalised", policy_lag=lag)
    states = [state_hash(built.algorithm.policy.state_dict())]
    for update in range(6):
        acting = state_hash(built.algorithm.behaviour.state_dict())
        assert acting == states[max(update - lag, 0)]
        assert built.collector.policy is built.algorithm.behaviour
        built.train_step()
        states.append(state_hash(built.algorithm.policy.state_dict()))
    built.close()


@pytest.mark.parametrize("lag", [0, 2])
def test_it_resumes_bit_for_bit(lag: int) -> None:
    """Also with the policies that wait for their turn to act."""
    through = trainer("normalised", policy_lag=lag)
    for _ in range(3):
        through.train_step()
    state = through.state_dict()
    resumed = trainer("normalised", policy_lag=lag)
    resumed.load_state_dict(state)
    for _ in range(4):
        assert {k: float(v) for k, v in resumed.train_step().items()} == {
            k: float(v) for k, v in through.train_step().items()
        }
    assert state_hash(resumed.state_dict()) == state_hash(through.state_dict())
    for built in (through, resumed):
        built.close()


def test_no_gradient_flows_through_targets_or_ratios() -> None:
    """The gradient is that of -logprob * advantage + value error with both taken for constants."""
    built = trainer(ent_coef=0.0, max_grad_norm=None, policy_lag=2)
    for _ in range(4):
        built.train_step()
    built.collector.collect(8, built.buffer)
    batch, algorithm = built.buffer.as_batch(), built.algorithm
    rollout = algorithm.prepare(batch)
    logprobs, _, values = algorithm.evaluated(rollout)
    loss = -(logprobs * rollout.advantages).mean() + 0.5 * 0.5 * (values - rollout.returns).square().mean()
    expected = torch.autograd.grad(loss, list(algorithm.network.parameters()))
    norm = torch.cat([gradient.reshape(-1) for gradient in expected]).norm()
    assert float(algorithm.update(batch).metrics["grad_norm"]) == pytest.approx(float(norm), rel=1e-4)
    built.close()


def test_without_correction_every_ratio_is_one() -> None:
    """The same rollout, a lag, and other targets."""
    corrected, plain = (trainer(policy_lag=4, correction=kind, learning_rate=5e-2) for kind in ("vtrace", "none"))
    for built in (corrected, plain):
        built.train_step()
    batch = {}
    for built in (corrected, plain):
        for parameter in built.algorithm.network.parameters():
            parameter.data += 0.1
        built.collector.collect(8, built.buffer)
        batch = built.buffer.as_batch()
    ratios = importance_ratios(corrected.algorithm.prepare(batch).logprobs.numpy(), batch[BEHAVIOUR].reshape(-1))
    assert np.abs(ratios - 1).max() > 0.01
    ours, theirs = (built.algorithm.prepare(batch).advantages.numpy() for built in (corrected, plain))
    assert np.abs(ours - theirs).max() > 0.01
    for built in (corrected, plain):
        built.close()


def test_ratios_stay_finite() -> None:
    assert np.isfinite(importance_ratios(np.float32([0.0]), np.float32([-500.0]))).all()


def test_clips_must_be_in_order() -> None:
    with pytest.raises(ConfigError, match=r"c_clip'? 2 is more than rho_clip 1"):
        trainer(c_clip=2.0)


def test_it_is_the_class_of_the_registry() -> None:
    built = trainer()
    assert isinstance(built.algorithm, Impala)
    built.close()
