"""Two-hot targets, losses and means against worked-out numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rl_training.models.world_models.two_hot import neighbours, symexp, symlog, two_hot, two_hot_loss, two_hot_mean
from rl_training.numerics.symlog import symexp_bins

BINS = torch.from_numpy(symexp_bins(255))
FIVE = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=torch.float64)


def test_symlog_of_tensors() -> None:
    values = torch.tensor([-1000.0, -1.0, 0.5, 10.0, 1000.0], dtype=torch.float64)
    expected = [-6.908754779315, -0.693147180560, 0.405465108108, 2.397895272798, 6.908754779315]
    np.testing.assert_allclose(symlog(values), expected, atol=1e-12)
    torch.testing.assert_close(symexp(symlog(values)), values)


@pytest.mark.parametrize(
    ("value", "lower", "weights"),
    [
        (0.1, 127, (0.4136882061551783, 0.5863117938448217)),
        (1.0, 131, (0.6173290787, 0.3826709213)),
        (-1.0, 122, (0.3826709213, 0.6173290787)),
        (5.0, 138, (0.6407064037, 0.3592935963)),
        (100.0, 156, (0.7105292606, 0.2894707394)),
    ],
)
def test_targets_over_255_bins(value: float, lower: int, weights: tuple[float, float]) -> None:
    target = two_hot(torch.tensor([value], dtype=torch.float64), BINS)[0]
    np.testing.assert_allclose(target[lower : lower + 2], weights, atol=1e-10)
    assert float(target.sum()) == pytest.approx(1.0, abs=1e-14)
    assert float(target @ BINS) == pytest.approx(value, rel=1e-13)


def test_values_beyond_the_bins_are_on_the_outermost() -> None:
    target = two_hot(torch.tensor([-1e12, 1e12], dtype=torch.float64), BINS)
    assert target[0, 0] == 1.0
    assert target[1, -1] == 1.0


def test_targets_over_a_few_bins() -> None:
    values = torch.tensor([0.25, -1.5, 3.0, 1.0], dtype=torch.float64)
    expected = [[0, 0, 0.75, 0.25, 0], [0.5, 0.5, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0]]
    np.testing.assert_allclose(two_hot(values, FIVE), expected, atol=1e-15)
    uneven = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    np.testing.assert_allclose(two_hot(torch.tensor([0.25]), uneven)[0], [0.0, 0.75, 0.25, 0.0], atol=1e-7)


def test_loss_and_mean() -> None:
    logprobs = F.log_softmax(torch.tensor([[0.0, 1.0, 2.0, 0.0, -1.0]], dtype=torch.float64), -1)
    value = torch.tensor([0.25], dtype=torch.float64)
    assert float(two_hot_loss(logprobs, value, FIVE)) == pytest.approx(1.0237440658193386, abs=1e-13)
    assert float(two_hot_mean(logprobs, FIVE)) == pytest.approx(-0.2390758299436475, abs=1e-13)
    dense = -(two_hot(value, FIVE) * logprobs).sum(-1)
    torch.testing.assert_close(two_hot_loss(logprobs, value, FIVE), dense)


@pytest.mark.parametrize("count", [63, 64, 255])
def test_zero_logits_predict_exactly_zero(count: int) -> None:
    bins = torch.from_numpy(symexp_bins(count)).to(torch.float32)
    logprobs = F.log_softmax(torch.zeros(3, count), -1)
    assert (two_hot_mean(logprobs, bins) == 0.0).all()


def test_summed_from_left_to_right_it_would_not() -> None:
    bins = torch.from_numpy(symexp_bins(255)).to(torch.float32)
    probs = np.full(255, 1.0 / 255.0, np.float32)
    total = np.float32(0.0)
    for probability, value in zip(probs, bins.numpy(), strict=True):
        total += probability * value
    assert abs(total) > 0.1


def test_the_mean_inverts_the_target() -> None:
    values = torch.tensor([-1234.5, -0.3, 0.0, 0.02, 7.0, 99_999.0], dtype=torch.float64)
    logprobs = two_hot(values, BINS).clamp(min=1e-300).log()
    np.testing.assert_allclose(two_hot_mean(logprobs, BINS), values, rtol=1e-12, atol=1e-12)


def test_targets_get_no_gradient() -> None:
    values = torch.tensor([0.3], requires_grad=True)
    logits = torch.zeros(1, 5, requires_grad=True)
    two_hot_loss(F.log_softmax(logits, -1), values, FIVE.to(torch.float32)).sum().backward()
    assert values.grad is None
    assert logits.grad is not None


def test_any_shape_of_values() -> None:
    values = torch.randn(3, 4, dtype=torch.float64)
    assert neighbours(values, FIVE).share.shape == (3, 4)
    assert two_hot(values, FIVE).shape == (3, 4, 5)
