"""PPO's and A2C's losses against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from rl_training.algorithms.a2c import policy_gradient_loss
from rl_training.algorithms.ppo import ppo_loss
from rl_training.numerics.normalization import normalized


def minibatch(**given: list[float]) -> dict[str, torch.Tensor]:
    size = len(next(iter(given.values())))
    names = ("logprobs", "old_logprobs", "advantages", "returns", "values", "new_values", "entropy")
    values = {name: given.get(name, [0.0] * size) for name in names}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"), [(1.3, 1, -1.2), (1.3, -1, 1.3), (0.7, 1, -0.7), (0.7, -1, 0.8)]
)
def test_clipped_policy_loss(ratio: float, advantage: float, expected: float):
    losses = ppo_loss(
        minibatch(logprobs=[math.log(ratio)], advantages=[advantage]), clip_coef=0.2, ent_coef=0.0, vf_coef=0.5
    )
    assert float(losses["policy_loss"]) == pytest.approx(expected, abs=1e-6)


def test_value_loss_is_half_the_squared_error_and_clips_when_asked():
    batch = minibatch(values=[1.0], new_values=[2.0], returns=[3.0])
    plain = ppo_loss(batch, clip_coef=0.2, ent_coef=0.0, vf_coef=1.0)
    clipped = ppo_loss(batch, clip_coef=0.2, ent_coef=0.0, vf_coef=1.0, clip_vf=0.2)
    assert float(plain["value_loss"]) == pytest.approx(0.5)
    assert float(clipped["value_loss"]) == pytest.approx(1.62)


def test_total_is_the_weighted_sum_and_entropy_loss_is_minus_the_mean():
    batch = minibatch(logprobs=[0.1, 0.2], advantages=[1.0, -2.0], new_values=[1.0, 3.0], entropy=[0.5, 1.5])
    losses = ppo_loss(batch, clip_coef=0.2, ent_coef=0.01, vf_coef=0.5)
    assert float(losses["entropy_loss"]) == pytest.approx(-1.0)
    total = losses["policy_loss"] + 0.5 * losses["value_loss"] + 0.01 * losses["entropy_loss"]
    assert float(losses["loss"]) == pytest.approx(float(total))


def test_kl_estimate_is_k3():
    losses = ppo_loss(minibatch(logprobs=[math.log(1.3)]), clip_coef=0.2, ent_coef=0.0, vf_coef=0.5)
    assert float(losses["approx_kl"]) == pytest.approx(0.0376357, abs=1e-6)
    assert float(losses["clip_fraction"]) == 1.0


def test_advantage_normalisation_uses_the_unbiased_deviation():
    result = normalized(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64))
    assert result.tolist() == pytest.approx([-1.161895, -0.387298, 0.387298, 1.161895], abs=1e-6)
    assert torch.isfinite(normalized(torch.tensor([3.0]))).all()


def test_at_ratio_one_ppo_and_a2c_have_the_same_gradient():
    logprobs = torch.randn(16, dtype=torch.float64, requires_grad=True)
    batch = minibatch(advantages=torch.randn(16).tolist()) | {"logprobs": logprobs, "old_logprobs": logprobs.detach()}
    (ppo,) = torch.autograd.grad(ppo_loss(batch, clip_coef=0.2, ent_coef=0.0, vf_coef=0.5)["loss"], logprobs)
    (a2c,) = torch.autograd.grad(policy_gradient_loss(batch, ent_coef=0.0, vf_coef=0.5)["loss"], logprobs)
    torch.testing.assert_close(ppo, a2c)
