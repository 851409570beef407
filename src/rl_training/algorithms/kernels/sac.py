"""SAC's gradients in closed form: the numbers of autograd through the losses of `algorithms/sac.py`, but faster.

The passes through the networks are in `kernels/mlp.py`; here is what lies between them. The losses of `sac.py` stay the
reference: a test holds this file to them, and `hparams.kernel: reference` uses them. It fits continuous actions and
tanh or ReLU MLPs on the CPU; everything else takes the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.kernels.critics import (
    critics_gradient,
    has_plain_networks,
    lowest_values,
    lowest_values_gradient,
)
from rl_training.algorithms.kernels.mlp import backward, encode, forward, layers_of, mean
from rl_training.algorithms.off_policy import CriticStep, Transitions
from rl_training.algorithms.sac import SAC, SAMPLED_ACTIONS, ActorStep, GaussianActor
from rl_training.models.backbones.mlp import MLP
from rl_training.models.critics import QCritics
from rl_training.numerics.stable import HALF_LOG_2PI, LOG_STD_MAX, LOG_STD_MIN
from rl_training.types import Array

HALF_RANGE = np.float32(0.5 * (LOG_STD_MAX - LOG_STD_MIN))


class Sample(NamedTuple):
    """Actions (B, A) of the policy, their log-densities (B,), and what the backward pass needs."""

    actions: Array
    logprobs: Array
    outputs: list[Array]
    """Outputs of every layer of the actor."""
    tanh_raw: Array
    noise_std: Array
    """The noise times the standard deviation."""


def fits(sac: SAC) -> bool:
    """True if this kernel computes what the networks of `sac` compute."""
    actor, own = sac.actor, sac.learners["actor"].network is sac.actor
    if type(actor) is not GaussianActor or not own or sac.learners["critics"].network is not sac.critics:
        return False
    plain = has_plain_networks(actor.backbone, actor.head.output, sac.critics, sac.targets["critics"].network)
    return plain and sac.actions is SAMPLED_ACTIONS


class FastKernel:
    """Losses and gradients of a batch, written into the gradients of actor and critics; see `kernel_choice.Kernel`."""

    def __init__(self, sac: SAC) -> None:
        actor, critics, targets = sac.actor, sac.critics, sac.targets["critics"].network
        assert isinstance(actor, GaussianActor)
        assert isinstance(actor.backbone, MLP)
        assert isinstance(targets, QCritics)
        self.backbone, self.size, self.rng = actor.backbone, sac.noise_size, sac.rng
        self.actor = layers_of(actor.backbone, actor.head.output)
        self.critics, self.targets = layers_of(critics, critics.output), layers_of(targets, targets.output)

    def gradient(self, name: str, loss: Callable[..., Any], rows: Transitions, alpha: Tensor | float) -> Any:
        with np.errstate(all="ignore"):  # the guard reports non-finite values, and names the tensor
            by_hand = self.critics_gradient if name == "critics" else self.actor_gradient
            return by_hand(rows, float(alpha))

    def critics_gradient(self, rows: Transitions, alpha: float) -> CriticStep:
        """Gradient of `critic_loss` towards the soft Bellman targets."""
        next_features = encode(self.backbone, rows.next_obs)
        sample = self.sample(next_features)
        next_values = lowest_values(self.targets, next_features, sample.actions) - alpha * sample.logprobs
        return critics_gradient(self.critics, encode(self.backbone, rows.obs), rows, next_values)

    def actor_gradient(self, rows: Transitions, alpha: float) -> ActorStep:
        """Gradient of `actor_loss`."""
        features = encode(self.backbone, rows.obs)
        sample = self.sample(features)
        actions, share = sample.actions, np.float32(1.0 / len(features))
        values, by_actions = lowest_values_gradient(self.critics, features, actions)
        # a = tanh(u): d log pi / du is 2 a, and the density of the noise does not depend on the actor
        by_mean = (2.0 * alpha * share) * actions - share * by_actions * (1.0 - actions * actions)
        by_log_std = by_mean * sample.noise_std - alpha * share
        by_raw = by_log_std * (HALF_RANGE * (1.0 - sample.tanh_raw * sample.tanh_raw))
        backward(self.actor, sample.outputs, np.concatenate([by_mean, by_raw], axis=1))
        return ActorStep(alpha * mean(sample.logprobs) - mean(values), torch.from_numpy(sample.logprobs))

    def sample(self, features: Array) -> Sample:
        """One action of the policy for each row."""
        noise = self.rng.standard_normal((len(features), self.size), dtype=np.float32)
        outputs = forward(self.actor, features)
        means, raw = np.split(outputs[-1], 2, axis=1)
        tanh_raw = np.tanh(raw)
        log_std = LOG_STD_MIN + HALF_RANGE * (tanh_raw + 1.0)
        noise_std = np.exp(log_std) * noise
        pre_tanh = means + noise_std
        # log(1 - tanh(u)^2) in the form that stays exact where tanh saturates
        squash = 2.0 * (np.float32(math.log(2.0)) - pre_tanh - np.logaddexp(np.float32(0.0), -2.0 * pre_tanh))
        logprobs = (-0.5 * noise * noise - log_std - np.float32(HALF_LOG_2PI) - squash).sum(1)
        return Sample(np.tanh(pre_tanh), logprobs, outputs, tanh_raw, noise_std)
