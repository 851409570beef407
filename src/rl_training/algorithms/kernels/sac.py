"""SAC's gradients by hand: the numbers of `sac.py`'s losses and autograd, faster where the networks are small.

The passes through the networks are in `algorithms/kernels/mlp.py`; here is what lies between them. The losses of
`sac.py` stay the reference: a test holds this file to them, and `hparams.kernel: reference` uses them. It fits
continuous actions and tanh or ReLU MLPs on the CPU; everything else takes the reference.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.kernels.critics import CriticStep, critics_gradient, lowest_values, lowest_values_gradient
from rl_training.algorithms.kernels.mlp import backward, encode, forward, layers_of, mean
from rl_training.algorithms.off_policy import Transitions
from rl_training.models.backbones.mlp import MLP
from rl_training.models.critics import QCritics
from rl_training.numerics.stable import LOG_STD_MAX, LOG_STD_MIN
from rl_training.types import Array

if TYPE_CHECKING:
    from rl_training.algorithms.sac import GaussianActor

HALF_RANGE = np.float32(0.5 * (LOG_STD_MAX - LOG_STD_MIN))
HALF_LOG_2PI = np.float32(0.5 * math.log(2.0 * math.pi))


class Sample(NamedTuple):
    """Actions (B, A) of the policy, their log-densities (B,), and what the way back needs."""

    actions: Array
    logprobs: Array
    outputs: list[Array]
    """Of every layer of the actor."""
    tanh_raw: Array
    noise_std: Array
    """The noise times the standard deviation."""


class SACKernel:
    """Losses and gradients of a batch, written into the gradients of actor and critics."""

    def __init__(self, actor: GaussianActor, critics: QCritics, targets: QCritics) -> None:
        assert isinstance(actor.backbone, MLP)
        self.backbone = actor.backbone
        self.actor = layers_of(actor.backbone, actor.head.output)
        self.critics, self.targets = layers_of(critics, critics.output), layers_of(targets, targets.output)

    @np.errstate(all="ignore")  # a number that is none is the guard's to report, by name
    def critics_gradient(self, rows: Transitions, alpha: float, noise: Array) -> CriticStep:
        """Of `critic_loss` towards the soft Bellman targets."""
        next_features = encode(self.backbone, rows.next_obs)
        sample = self.sample(next_features, noise)
        futures = lowest_values(self.targets, next_features, sample.actions) - alpha * sample.logprobs
        return critics_gradient(self.critics, encode(self.backbone, rows.obs), rows, futures)

    @np.errstate(all="ignore")
    def actor_gradient(self, rows: Transitions, alpha: float, noise: Array) -> tuple[float, Tensor]:
        """Of `actor_loss`; returns the loss and the log-densities (B,)."""
        features = encode(self.backbone, rows.obs)
        sample = self.sample(features, noise)
        actions, share = sample.actions, np.float32(1.0 / len(features))
        values, by_actions = lowest_values_gradient(self.critics, features, actions)
        # a = tanh(u): d log pi / du is 2 a, and the density of the noise does not depend on the actor
        by_mean = (2.0 * alpha * share) * actions - share * by_actions * (1.0 - actions * actions)
        by_log_std = by_mean * sample.noise_std - alpha * share
        by_raw = by_log_std * (HALF_RANGE * (1.0 - sample.tanh_raw * sample.tanh_raw))
        backward(self.actor, sample.outputs, np.concatenate([by_mean, by_raw], axis=1))
        return alpha * mean(sample.logprobs) - mean(values), torch.from_numpy(sample.logprobs)

    def sample(self, features: Array, noise: Array) -> Sample:
        outputs = forward(self.actor, features)
        means, raw = np.split(outputs[-1], 2, axis=1)
        tanh_raw = np.tanh(raw)
        log_std = LOG_STD_MIN + HALF_RANGE * (tanh_raw + 1.0)
        noise_std = np.exp(log_std) * noise
        pre_tanh = means + noise_std
        # log(1 - tanh(u)^2) in the form that stays exact where tanh saturates
        squash = 2.0 * (np.float32(math.log(2.0)) - pre_tanh - np.logaddexp(np.float32(0.0), -2.0 * pre_tanh))
        logprobs = (-0.5 * noise * noise - log_std - HALF_LOG_2PI - squash).sum(1)
        return Sample(np.tanh(pre_tanh), logprobs, outputs, tanh_raw, noise_std)
