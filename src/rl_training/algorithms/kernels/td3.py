"""TD3's gradients by hand: the numbers of `td3.py`'s losses and autograd, faster where the networks are small.

The passes through the networks are in `algorithms/kernels/mlp.py`, the critics' loss in `critic_kernel.py`. `td3.py`
stays the reference: a test holds this file to it, and `hparams.kernel: reference` uses it. It fits tanh or ReLU MLPs on
the CPU; everything else takes the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.kernels.critics import CriticStep, critics_gradient, first_values_gradient, lowest_values
from rl_training.algorithms.kernels.mlp import backward, encode, forward, layers_of, mean
from rl_training.algorithms.off_policy import Transitions
from rl_training.models.backbones.mlp import MLP
from rl_training.models.critics import QCritics

if TYPE_CHECKING:
    from rl_training.algorithms.td3 import DeterministicActor


class TD3Kernel:
    """Losses and gradients of a batch, written into the gradients of actor and critics."""

    def __init__(
        self, actor: DeterministicActor, target_actor: DeterministicActor, critics: QCritics, targets: QCritics
    ) -> None:
        assert isinstance(actor.backbone, MLP)
        assert isinstance(target_actor.backbone, MLP)
        self.backbone = actor.backbone
        self.actor = layers_of(actor.backbone, actor.output)
        self.target_actor = layers_of(target_actor.backbone, target_actor.output)
        self.critics, self.targets = layers_of(critics, critics.output), layers_of(targets, targets.output)

    @np.errstate(all="ignore")  # a number that is none is the guard's to report, by name
    def critics_gradient(self, rows: Transitions, with_noise: Callable[[Tensor], Tensor]) -> CriticStep:
        """Of `critic_loss` towards the target critics' values of the target actor's actions, noise on them."""
        next_features = encode(self.backbone, rows.next_obs)
        actions = with_noise(torch.from_numpy(np.tanh(forward(self.target_actor, next_features)[-1])))
        futures = lowest_values(self.targets, next_features, actions.numpy())
        return critics_gradient(self.critics, encode(self.backbone, rows.obs), rows, futures)

    @np.errstate(all="ignore")
    def actor_gradient(self, rows: Transitions) -> float:
        """Of minus the first critic's value; returns that loss."""
        features = encode(self.backbone, rows.obs)
        outputs = forward(self.actor, features)
        actions = np.tanh(outputs[-1])
        values, by_actions = first_values_gradient(self.critics, features, actions)
        backward(self.actor, outputs, by_actions * (np.float32(-1.0 / len(features)) * (1.0 - actions * actions)))
        return -mean(values)
