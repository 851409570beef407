"""Heads: from features to actions or values. Action heads know their distribution; value and Q heads are linear maps.

An action head has three verbs. `forward` maps features to parameters (a tensor), `logprob_entropy` evaluates actions
under them in torch, `sample` draws actions in NumPy with the caller's generator: the same noise on CPU and GPU.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.initialization import linear
from rl_training.numerics.initial_weights import POLICY_GAIN, VALUE_GAIN
from rl_training.numerics.stable import HALF_LOG_2PI, LOG_STD_MAX, LOG_STD_MIN
from rl_training.types import Array, BoxSpec, DictSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec, SpaceSpec

MASKED_LOGIT = -1e8  # finite: 0 probability in float32, and 0 * log(0) stays 0 in the entropy


class ActionParams(NamedTuple):
    """Parameters of a batch of action distributions."""

    mean: Tensor
    """Logits of discrete actions, means of Gaussian ones (B, ...)."""
    log_std: Tensor | None = None
    """Log standard deviations (B, A) or (A,) of Gaussian actions."""


class ActionHead(nn.Module):
    """Interface of the action heads below."""

    def forward(self, features: Tensor) -> ActionParams:
        raise NotImplementedError("an action head maps features to ActionParams")

    def logprob_entropy(self, params: ActionParams, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of each row, both (B,)."""
        raise NotImplementedError("an action head evaluates actions")

    def sample(self, mean: Array, rng: np.random.Generator, *, deterministic: bool, mask: Array | None) -> Array:
        """Actions (B, ...) from parameters given as arrays."""
        raise NotImplementedError("an action head draws actions")


class CategoricalHead(ActionHead):
    """One choice out of n."""

    def __init__(self, features: int, space: DiscreteSpec, rng: np.random.Generator) -> None:
        super().__init__()
        self.output = linear(rng, features, space.n, gain=POLICY_GAIN)

    def forward(self, features: Tensor) -> ActionParams:
        return ActionParams(self.output(features))

    def logprob_entropy(self, params: ActionParams, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return categorical_logprob_entropy(params.mean, actions, mask)

    def sample(self, mean: Array, rng: np.random.Generator, *, deterministic: bool, mask: Array | None) -> Array:
        return sample_categorical(mean, rng, deterministic, mask)


class MultiCategoricalHead(ActionHead):
    """Several independent choices at once; a mask covers them one after the other."""

    def __init__(self, features: int, space: MultiDiscreteSpec, rng: np.random.Generator) -> None:
        super().__init__()
        self.nvec = list(space.nvec)
        self.splits = list(np.cumsum(space.nvec)[:-1])
        self.output = linear(rng, features, sum(space.nvec), gain=POLICY_GAIN)

    def forward(self, features: Tensor) -> ActionParams:
        return ActionParams(self.output(features))

    def logprob_entropy(self, params: ActionParams, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        logits = torch.split(params.mean, self.nvec, dim=1)
        masks = [None] * len(self.nvec) if mask is None else torch.split(mask, self.nvec, dim=1)
        parts = [
            categorical_logprob_entropy(choice, actions[:, i], allowed)
            for i, (choice, allowed) in enumerate(zip(logits, masks, strict=True))
        ]
        return sum_parts(parts)

    def sample(self, mean: Array, rng: np.random.Generator, *, deterministic: bool, mask: Array | None) -> Array:
        logits = np.split(mean, self.splits, axis=1)
        masks = [None] * len(logits) if mask is None else np.split(mask, self.splits, axis=1)
        choices = [sample_categorical(x, rng, deterministic, m) for x, m in zip(logits, masks, strict=True)]
        return np.stack(choices, axis=1)


class BernoulliHead(ActionHead):
    """n independent switches. A mask of 0 keeps a switch off."""

    def __init__(self, features: int, space: MultiBinarySpec, rng: np.random.Generator) -> None:
        super().__init__()
        self.output = linear(rng, features, space.n, gain=POLICY_GAIN)

    def forward(self, features: Tensor) -> ActionParams:
        return ActionParams(self.output(features))

    def logprob_entropy(self, params: ActionParams, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        logits = params.mean if mask is None else params.mean.masked_fill(mask == 0, MASKED_LOGIT)
        on, off = F.logsigmoid(logits), F.logsigmoid(-logits)
        logprob = torch.where(actions > 0, on, off).sum(1)
        probability = torch.sigmoid(logits)
        entropy = -(probability * on + (1.0 - probability) * off).sum(1)
        return logprob, entropy

    def sample(self, mean: Array, rng: np.random.Generator, *, deterministic: bool, mask: Array | None) -> Array:
        logits = mean if mask is None else np.where(mask == 0, MASKED_LOGIT, mean)
        noise = 0.0 if deterministic else rng.logistic(size=logits.shape)  # sigmoid(x) > u is x + logistic noise > 0
        return (logits + noise > 0).astype(np.int8)


class GaussianHead(ActionHead):
    """A mean per state and one learnt standard deviation per action dimension."""

    def __init__(self, features: int, space: BoxSpec, rng: np.random.Generator, log_std_init: float = 0.0) -> None:
        super().__init__()
        self.shape = space.shape
        self.output = linear(rng, features, math.prod(space.shape), gain=POLICY_GAIN)
        self.log_std = nn.Parameter(torch.full((math.prod(space.shape),), float(log_std_init)))

    def forward(self, features: Tensor) -> ActionParams:
        return ActionParams(self.output(features), self.log_std)

    def logprob_entropy(self, params: ActionParams, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return gaussian_logprob_entropy(params, actions.flatten(1))

    def sample(self, mean: Array, rng: np.random.Generator, *, deterministic: bool, mask: Array | None) -> Array:
        if not deterministic:
            std = np.exp(self.log_std.detach().cpu().numpy())
            mean = mean + std * rng.standard_normal(mean.shape, dtype=np.float32)
        return mean.reshape(len(mean), *self.shape)


class StateDependentGaussianHead(ActionHead):
    """gSDE (Raffin et al. 2022, arXiv:2005.05719): noise that is a linear function of the features.

    Between two draws of its matrix the noise is a deterministic function of the state, so the exploration is smooth.
    The draws belong to the acting policy's carry (`rl_training.numerics.gsde`); the current `log_std` scales them.
    """

    def __init__(self, features: int, space: BoxSpec, rng: np.random.Generator, log_std_init: float = 0.0) -> None:
        super().__init__()
        self.shape = space.shape
        self.output = linear(rng, features, math.prod(space.shape), gain=POLICY_GAIN)
        self.log_std = nn.Parameter(torch.full((features, math.prod(space.shape)), float(log_std_init)))

    def forward(self, features: Tensor) -> ActionParams:
        # detached: the exploration scale must not shape the features
        variance = features.detach().square() @ self.log_std.exp().square()
        return ActionParams(self.output(features), 0.5 * torch.log(variance + 1e-6))

    def logprob_entropy(self, params: ActionParams, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return gaussian_logprob_entropy(params, actions.flatten(1))

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Standard normal numbers for noise matrices (count, features, A)."""
        return rng.standard_normal((count, *self.log_std.shape), dtype=np.float32)

    def sample_with_draws(self, mean: Array, features: Array, draws: Array) -> Array:
        """Actions with the noise matrices `draws` (B, F, A), scaled by the current standard deviations."""
        std = np.exp(self.log_std.detach().cpu().numpy())
        noisy = mean + np.einsum("bf,bfa->ba", features, std * draws)
        return cast(Array, noisy.reshape(len(mean), *self.shape))

    def sample(self, mean: Array, rng: np.random.Generator, *, deterministic: bool, mask: Array | None) -> Array:
        return mean.reshape(len(mean), *self.shape)


class SquashedGaussianHead(nn.Module):
    """A Gaussian squashed by tanh into the action bounds; mean and log std both depend on the state (SAC)."""

    low: Tensor
    high: Tensor

    def __init__(self, features: int, space: BoxSpec, rng: np.random.Generator) -> None:
        super().__init__()
        self.shape = space.shape
        size = math.prod(space.shape)
        self.output = linear(rng, features, 2 * size, gain=1.0)
        self.register_buffer("low", torch.as_tensor(space.low, dtype=torch.float32).flatten(), persistent=False)
        self.register_buffer("high", torch.as_tensor(space.high, dtype=torch.float32).flatten(), persistent=False)

    def forward(self, features: Tensor) -> ActionParams:
        mean, raw = self.output(features).chunk(2, dim=1)
        return ActionParams(mean, bounded_log_std(raw))

    def squash(self, pre_tanh: Tensor) -> Tensor:
        """Pre-tanh values to actions within the bounds; low -2, high 1 and tanh .5 give .25."""
        actions = self.low + 0.5 * (torch.tanh(pre_tanh) + 1.0) * (self.high - self.low)
        return actions.clamp(self.low, self.high)  # rounding may exceed the bounds

    def rsample(self, params: ActionParams, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Differentiable actions from standard normal `noise`, with the log-density of their tanh in [-1, 1]."""
        assert params.log_std is not None
        pre_tanh = params.mean + params.log_std.exp() * noise
        return self.squash(pre_tanh), tanh_gaussian_logprob(pre_tanh, params.mean, params.log_std)


class ValueHead(nn.Module):
    """One number per state."""

    def __init__(self, features: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.output = linear(rng, features, 1, gain=VALUE_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        return cast(Tensor, self.output(features)).squeeze(1)  # (B,)


class QHead(nn.Module):
    """One value per discrete action."""

    def __init__(self, features: int, num_actions: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.output = linear(rng, features, num_actions, gain=VALUE_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        return cast(Tensor, self.output(features))  # (B, A)


class DuelingHead(nn.Module):
    """State value plus advantages of mean zero (Wang et al. 2016, arXiv:1511.06581)."""

    def __init__(self, features: int, num_actions: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.value = linear(rng, features, 1, gain=VALUE_GAIN)
        self.advantage = linear(rng, features, num_actions, gain=VALUE_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        advantage = self.advantage(features)
        return cast(Tensor, self.value(features) + advantage - advantage.mean(1, keepdim=True))  # (B, A)


class C51Head(nn.Module):
    """A categorical distribution over fixed returns for every action (Bellemare et al. 2017, arXiv:1707.06887)."""

    support: Tensor

    def __init__(
        self, features: int, num_actions: int, rng: np.random.Generator, *, atoms: int = 51, low: float, high: float
    ) -> None:
        super().__init__()
        self.atoms = atoms
        self.output = linear(rng, features, num_actions * atoms, gain=VALUE_GAIN)
        self.register_buffer("support", torch.linspace(low, high, atoms), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Log-probabilities (B, A, atoms)."""
        logits = cast(Tensor, self.output(features))
        return F.log_softmax(logits.reshape(len(logits), -1, self.atoms), dim=2)

    def q_values(self, log_probabilities: Tensor) -> Tensor:
        return (log_probabilities.exp() * self.support).sum(2)  # (B, A)


class QuantileHead(nn.Module):
    """Equally likely quantiles of the return for every action (Dabney et al. 2018, arXiv:1710.10044)."""

    def __init__(self, features: int, num_actions: int, rng: np.random.Generator, *, quantiles: int = 200) -> None:
        super().__init__()
        self.quantiles = quantiles
        self.output = linear(rng, features, num_actions * quantiles, gain=VALUE_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        """Quantile values (B, A, quantiles)."""
        values = cast(Tensor, self.output(features))
        return values.reshape(len(values), -1, self.quantiles)

    def q_values(self, quantiles: Tensor) -> Tensor:
        return quantiles.mean(2)  # (B, A)


# -- the mathematics --------------------------------------------------------------------------------------------------


def categorical_logprob_entropy(logits: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Log-probability of each row's action and the entropy of each row."""
    if mask is not None:
        logits = logits.masked_fill(mask == 0, MASKED_LOGIT)
    log_probabilities = F.log_softmax(logits, dim=1)  # (B, A)
    logprob = log_probabilities.gather(1, actions.long().unsqueeze(1)).squeeze(1)
    entropy = -(log_probabilities.exp() * log_probabilities).sum(1)
    return logprob, entropy


def gaussian_logprob_entropy(params: ActionParams, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Diagonal Gaussian, summed over action dimensions; the entropy of 3 unit dimensions is 4.256816."""
    mean, log_std = params
    assert log_std is not None
    standardized = (actions - mean) * torch.exp(-log_std)
    logprob = (-0.5 * standardized.square() - log_std - HALF_LOG_2PI).sum(1)
    entropy = (log_std + 0.5 + HALF_LOG_2PI).expand_as(mean).sum(1)
    return logprob, entropy


def bounded_log_std(raw: Tensor) -> Tensor:
    """Squash an unbounded output into the bounds of log standard deviations."""
    return LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (torch.tanh(raw) + 1.0)


def tanh_gaussian_logprob(pre_tanh: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log-density of tanh(x) for Gaussian x, in the form that stays exact where tanh saturates; (B,)."""
    standardized = (pre_tanh - mean) * torch.exp(-log_std)
    gaussian = -0.5 * standardized.square() - log_std - HALF_LOG_2PI
    # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2x)); the common log(1 - tanh^2 + 1e-6) is off by 5 at x = 10
    squash = 2.0 * (math.log(2.0) - pre_tanh - F.softplus(-2.0 * pre_tanh))
    return (gaussian - squash).sum(-1)


def sample_categorical(logits: Array, rng: np.random.Generator, deterministic: bool, mask: Array | None) -> Array:
    """The most likely action, or one drawn by the Gumbel-max trick."""
    if mask is not None:
        logits = np.where(mask == 0, MASKED_LOGIT, logits)
    if not deterministic:
        logits = logits - np.log(rng.standard_exponential(logits.shape))  # -log(exponential) is Gumbel noise
    return cast(Array, logits.argmax(axis=1))


def sum_parts(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Independent parts of an action: log-probabilities and entropies add up."""
    return torch.stack([p for p, _ in parts]).sum(0), torch.stack([e for _, e in parts]).sum(0)


def build_action_head(
    features: int, space: SpaceSpec, rng: np.random.Generator, *, log_std_init: float = 0.0, use_sde: bool = False
) -> ActionHead:
    """The head that fits an action space."""
    if isinstance(space, DiscreteSpec):
        return CategoricalHead(features, space, rng)
    if isinstance(space, MultiDiscreteSpec):
        return MultiCategoricalHead(features, space, rng)
    if isinstance(space, MultiBinarySpec):
        return BernoulliHead(features, space, rng)
    if isinstance(space, DictSpec):
        raise TypeError("Dict action spaces have no head; the environment factory flattens or refuses them")
    head = StateDependentGaussianHead if use_sde else GaussianHead
    return head(features, space, rng, log_std_init)
