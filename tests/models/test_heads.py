"""Action heads and their mathematics against numbers worked out by hand or by torch.distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rl_training.models.heads import (
    ActionParams,
    BernoulliHead,
    C51Head,
    CategoricalHead,
    DuelingHead,
    GaussianHead,
    MultiCategoricalHead,
    QuantileHead,
    SquashedGaussianHead,
    StateDependentGaussianHead,
    categorical_logprob_entropy,
    gaussian_logprob_entropy,
    tanh_gaussian_logprob,
)
from rl_training.types import BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def box(low: float = -1.0, high: float = 1.0, size: int = 1) -> BoxSpec:
    return BoxSpec(np.full(size, low, np.float32), np.full(size, high, np.float32), np.dtype(np.float32))


def test_entropy_of_a_three_dimensional_unit_gaussian_is_summed():
    _, entropy = gaussian_logprob_entropy(ActionParams(torch.zeros(2, 3), torch.zeros(3)), torch.zeros(2, 3))
    assert entropy.tolist() == pytest.approx([4.256816] * 2, abs=1e-5)


@pytest.mark.parametrize(("pre_tanh", "expected"), [(1.0, -0.551377), (10.0, -32.305233 + 0.0), (0.0, -0.918939)])
def test_tanh_gaussian_stays_exact_where_tanh_saturates(pre_tanh: float, expected: float):
    x = torch.tensor([[pre_tanh]], dtype=torch.float64)
    zero = torch.zeros(1, 1, dtype=torch.float64)
    assert float(tanh_gaussian_logprob(x, zero, zero)) == pytest.approx(expected, abs=1e-5)


def test_gaussian_agrees_with_torch_distributions():
    mean, log_std, actions = torch.randn(5, 3), torch.randn(3) * 0.3, torch.randn(5, 3)
    logprob, entropy = gaussian_logprob_entropy(ActionParams(mean, log_std), actions)
    normal = torch.distributions.Normal(mean, log_std.exp().expand_as(mean))
    torch.testing.assert_close(logprob, normal.log_prob(actions).sum(1))
    torch.testing.assert_close(entropy, normal.entropy().sum(1))


def test_categorical_agrees_with_torch_distributions_with_and_without_mask():
    logits, actions = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [1, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 1, 0, 0]])
    for allowed in (None, mask):
        seen = logits if allowed is None else logits.masked_fill(allowed == 0, -torch.inf)
        expected = torch.distributions.Categorical(logits=seen)
        logprob, entropy = categorical_logprob_entropy(logits, actions, allowed)
        torch.testing.assert_close(logprob, expected.log_prob(actions))
        probabilities = expected.probs
        by_hand = -(probabilities * torch.where(probabilities > 0, probabilities, 1.0).log()).sum(1)
        torch.testing.assert_close(entropy, by_hand)


def test_a_single_allowed_action_has_entropy_zero_and_finite_gradients():
    logits = torch.randn(1, 3, requires_grad=True)
    logprob, entropy = categorical_logprob_entropy(logits, torch.tensor([2]), torch.tensor([[0, 0, 1]]))
    assert float(entropy.detach()) == 0.0
    assert float(logprob.detach()) == 0.0
    (logprob + entropy).sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_multi_categorical_is_the_sum_of_its_choices_and_samples_within_its_masks():
    head = MultiCategoricalHead(4, MultiDiscreteSpec((2, 3)), rng())
    params = head(torch.randn(2, 4))
    actions = torch.tensor([[0, 2], [1, 1]])
    mask = torch.tensor([[1, 0, 0, 0, 1], [1, 1, 1, 1, 0]])
    logprob, entropy = head.logprob_entropy(params, actions, mask)
    first = categorical_logprob_entropy(params.mean[:, :2], actions[:, 0], mask[:, :2])
    second = categorical_logprob_entropy(params.mean[:, 2:], actions[:, 1], mask[:, 2:])
    torch.testing.assert_close(logprob, first[0] + second[0])
    torch.testing.assert_close(entropy, first[1] + second[1])
    drawn = [
        head.sample(params.mean.detach().numpy(), rng(), deterministic=False, mask=mask.numpy()) for _ in range(20)
    ]
    assert all((d[0] == [0, 2]).all() and d[1, 1] < 2 for d in drawn)


def test_bernoulli_agrees_with_torch_distributions():
    head = BernoulliHead(4, MultiBinarySpec(3), rng())
    params = ActionParams(torch.randn(5, 3))
    actions = torch.randint(0, 2, (5, 3))
    logprob, entropy = head.logprob_entropy(params, actions, None)
    expected = torch.distributions.Bernoulli(logits=params.mean)
    torch.testing.assert_close(logprob, expected.log_prob(actions.float()).sum(1))
    torch.testing.assert_close(entropy, expected.entropy().sum(1))
    masked = head.sample(np.full((4, 3), 9.0), rng(), deterministic=False, mask=np.array([[1, 0, 1]] * 4))
    assert (masked[:, 1] == 0).all()


@pytest.mark.parametrize("kind", ["categorical", "bernoulli", "gaussian"])
def test_samples_follow_their_distribution(kind: str):
    generator, count = rng(), 40_000
    if kind == "categorical":
        head = CategoricalHead(2, DiscreteSpec(3), rng())
        drawn = head.sample(np.tile(np.log([0.2, 0.3, 0.5]), (count, 1)), generator, deterministic=False, mask=None)
        frequencies = np.bincount(drawn, minlength=3) / count
        assert frequencies == pytest.approx([0.2, 0.3, 0.5], abs=0.01)
    elif kind == "bernoulli":
        logits = np.log([0.2 / 0.8, 0.7 / 0.3])
        drawn = BernoulliHead(2, MultiBinarySpec(2), rng()).sample(
            np.tile(logits, (count, 1)), generator, deterministic=False, mask=None
        )
        assert drawn.mean(0) == pytest.approx([0.2, 0.7], abs=0.01)
    else:
        head = GaussianHead(2, box(size=2), rng(), log_std_init=math.log(0.5))
        drawn = head.sample(np.tile(np.float32([1.0, -1.0]), (count, 1)), generator, deterministic=False, mask=None)
        assert drawn.mean(0) == pytest.approx([1.0, -1.0], abs=0.02)
        assert drawn.std(0) == pytest.approx([0.5, 0.5], abs=0.02)


def test_squashed_actions_are_rescaled_to_the_bounds():
    head = SquashedGaussianHead(2, box(-2.0, 1.0), rng())
    assert float(head.squash(torch.atanh(torch.tensor([[0.5]])))) == pytest.approx(0.25)


def test_state_dependent_noise_has_the_variance_its_log_prob_claims():
    head = StateDependentGaussianHead(3, box(size=2), rng(), log_std_init=-1.0)
    features = np.float32([[0.5, -1.0, 2.0]])
    draws = head.draw(rng(), 40_000)
    mean = np.zeros((40_000, 2), np.float32)
    for moved in (0.0, 1.0):  # the draws stay, the standard deviation does not
        with torch.no_grad():
            head.log_std += moved
        drawn = head.sample_with_draws(mean, np.repeat(features, 40_000, 0), draws)
        claimed = head(torch.from_numpy(features)).log_std.exp().detach().numpy()[0]
        assert drawn.std(0) == pytest.approx(claimed, rel=0.02)


def test_initial_gains():
    head = CategoricalHead(64, DiscreteSpec(2), rng())
    weight = head.output.weight.detach().numpy()
    np.testing.assert_allclose(weight @ weight.T, np.eye(2) * 0.01**2, atol=1e-8)
    assert (head.output.bias == 0).all()


def test_dueling_advantages_have_mean_zero():
    head = DuelingHead(4, 3, rng())
    features = torch.randn(5, 4)
    torch.testing.assert_close(head(features).mean(1), head.value(features).squeeze(1))


def test_distributional_heads_report_the_mean_of_their_distribution():
    c51 = C51Head(4, 2, rng(), atoms=3, low=-1.0, high=1.0)
    log_probabilities = torch.log(torch.tensor([[[0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]]]))
    assert c51.q_values(log_probabilities)[0].tolist() == pytest.approx([0.3, 0.0], abs=1e-6)
    torch.testing.assert_close(c51(torch.randn(5, 4)).exp().sum(2), torch.ones(5, 2))
    quantile = QuantileHead(4, 2, rng(), quantiles=4)
    assert quantile(torch.randn(5, 4)).shape == (5, 2, 4)
    assert quantile.q_values(torch.tensor([[[1.0, 2.0, 3.0, 6.0]]])).tolist() == [[3.0]]
