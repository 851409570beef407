"""Random parts of a state: probabilities, samples, divergences and gradients against worked-out numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.dynamics.base import bounded_actions, standard_normal
from rl_training.dynamics.latents import (
    Categorical,
    Gaussian,
    categorical_divergence,
    gaussian_divergence,
    mixed_logits,
    sampled_class,
    straight_through,
)
from rl_training.types import ConfigError

LOGITS = torch.tensor([0.0, 1.0, 2.0, -1.0], dtype=torch.float64)


def test_mixed_probabilities() -> None:
    mixed = mixed_logits(LOGITS, 0.01)
    expected = [0.0887728756, 0.2370139899, 0.6399751173, 0.0342380172]
    np.testing.assert_allclose(mixed.exp(), expected, atol=1e-10)
    assert float(-(mixed.exp() * mixed).sum()) == pytest.approx(0.9573638013923387, abs=1e-12)
    certain = mixed_logits(torch.tensor([100.0, 0.0, 0.0, 0.0], dtype=torch.float64), 0.01).exp()
    np.testing.assert_allclose(certain, [0.9925, 0.0025, 0.0025, 0.0025], atol=1e-12)


def test_sampling_by_the_inverse_of_the_cumulative_distribution() -> None:
    probs = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).expand(4, 4)
    uniform = torch.tensor([0.05, 0.1, 0.35, 0.95], dtype=torch.float64)
    assert sampled_class(probs, uniform).tolist() == [0, 0, 2, 3]


def test_frequencies_of_samples() -> None:
    uniform = torch.from_numpy(np.random.default_rng(0).random((20_000, 1)))
    latent = Categorical(1, 4, 0.0)
    belief = latent.belief(torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).log().expand(20_000, 4))
    np.testing.assert_allclose(latent.sample(belief, uniform).mean(0), [0.1, 0.2, 0.3, 0.4], atol=0.01)


def test_the_gradient_of_a_sample_is_that_of_the_mixed_probabilities() -> None:
    logits = LOGITS.clone().requires_grad_()
    sample = straight_through(mixed_logits(logits, 0.01), torch.tensor(0.5, dtype=torch.float64))
    np.testing.assert_array_equal(sample.detach(), [0.0, 0.0, 1.0, 0.0])
    (sample * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    expected = [-0.1398386, -0.1456067, 0.241675, 0.0437703]
    np.testing.assert_allclose(logits.grad, expected, atol=1e-7)


def test_without_noise_the_most_likely_class() -> None:
    assert straight_through(mixed_logits(LOGITS, 0.01), None).tolist() == [0.0, 0.0, 1.0, 0.0]


def test_divergence_of_categoricals() -> None:
    peaked, flat = torch.tensor([0.7, 0.1, 0.1, 0.1]), torch.full((4,), 0.25)
    one = torch.stack([peaked, flat]).to(torch.float64).log()
    other = torch.stack([flat, peaked]).to(torch.float64).log()
    assert float(categorical_divergence(one, other)) == pytest.approx(0.8756595670748908, abs=1e-7)
    assert float(categorical_divergence(one.repeat(4, 1), other.repeat(4, 1))) == pytest.approx(3.50263826829, abs=1e-6)


def test_divergence_of_gaussians() -> None:
    half, wide = torch.full((1,), 0.5, dtype=torch.float64), torch.full((1,), 0.8, dtype=torch.float64)
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert float(gaussian_divergence(half, wide, zero, one)) == pytest.approx(0.16814355131420977, abs=1e-13)
    many = [value.expand(30) for value in (half, wide, zero, one)]
    assert float(gaussian_divergence(*many)) == pytest.approx(5.044306539426293, abs=1e-12)


def test_normal_numbers_from_uniform_ones() -> None:
    numbers = standard_normal(torch.tensor([0.5, 0.975, 0.0, 1.0], dtype=torch.float64))
    assert numbers[:2].tolist() == pytest.approx([0.0, 1.959963984540054], abs=1e-9)
    assert torch.isfinite(numbers).all()
    assert torch.isfinite(standard_normal(torch.tensor([0.0, 1.0]))).all()


def test_gaussian_samples() -> None:
    latent = Gaussian(2)
    belief = latent.belief(torch.tensor([[1.0, -1.0, 0.0, 0.0]]).expand(20_000, 4))
    samples = latent.sample(belief, torch.from_numpy(np.random.default_rng(0).random((20_000, 2), np.float32)))
    np.testing.assert_allclose(samples.mean(0), [1.0, -1.0], atol=0.02)
    np.testing.assert_allclose(samples.std(0), np.log(2.0) + 0.1, rtol=0.02)
    assert torch.equal(latent.sample(belief, None), belief["mean"])


def test_class_numbers_are_the_smaller_form_of_samples() -> None:
    latent = Categorical(3, 5, 0.01)
    numbers = torch.tensor([[0, 4, 2]], dtype=torch.uint8)
    assert torch.equal(latent.class_numbers(latent.one_hot(numbers)), numbers)


def test_actions_beyond_the_bounds_are_moved_onto_them() -> None:
    actions = torch.tensor([-3.0, -1.0, 0.5, 1.7], requires_grad=True)
    bounded = bounded_actions(actions)
    assert bounded.tolist() == pytest.approx([-1.0, -1.0, 0.5, 1.0])
    bounded.sum().backward()
    assert actions.grad is not None
    assert actions.grad.tolist() == pytest.approx([1 / 3, 1.0, 1.0, 1 / 1.7])  # the divisor is a constant


def test_unimix_must_be_a_share() -> None:
    with pytest.raises(ConfigError, match="unimix"):
        Categorical(2, 2, 1.0)
