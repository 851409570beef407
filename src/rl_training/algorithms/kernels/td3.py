"""TD3's gradients in closed form: the numbers of autograd through the losses of `algorithms/td3.py`, but faster.

The passes through the networks are in `kernels/mlp.py`, the critics' loss in `kernels/critics.py`. `td3.py` stays the
reference: a test holds this file to it, and `hparams.kernel: reference` uses it. It fits tanh or ReLU MLPs on the CPU;
everything else takes the reference. DDPG is TD3 with other settings and shares the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.kernels.critics import (
    critics_gradient,
    first_values_gradient,
    has_plain_networks,
    lowest_values,
)
from rl_training.algorithms.kernels.mlp import backward, encode, forward, layers_of, mean
from rl_training.algorithms.off_policy import CriticStep, Transitions
from rl_training.algorithms.td3 import TD3, ActorStep, DeterministicActor, smoothed
from rl_training.models.backbones.mlp import MLP
from rl_training.models.critics import QCritics
from rl_training.types import Array


def fits(td3: TD3) -> bool:
    """True if this kernel computes what the networks of `td3` compute."""
    ensembles = td3.critics, td3.targets["critics"].network
    own = td3.learners["actor"].network is td3.actor and td3.learners["critics"].network is td3.critics
    return own and all(
        type(actor) is DeterministicActor and has_plain_networks(actor.backbone, actor.output, *ensembles)
        for actor in (td3.actor, td3.targets["actor"].network)
    )


class FastKernel:
    """Losses and gradients of a batch, written into the gradients of actor and critics; see `kernel_choice.Kernel`."""

    def __init__(self, td3: TD3) -> None:
        actor, target_actor = td3.actor, td3.targets["actor"].network
        critics, targets = td3.critics, td3.targets["critics"].network
        assert isinstance(target_actor, DeterministicActor)
        assert isinstance(targets, QCritics)
        assert isinstance(actor.backbone, MLP)
        assert isinstance(target_actor.backbone, MLP)
        self.backbone, self.rng = actor.backbone, td3.rng
        self.actor = layers_of(actor.backbone, actor.output)
        self.target_actor = layers_of(target_actor.backbone, target_actor.output)
        self.critics, self.targets = layers_of(critics, critics.output), layers_of(targets, targets.output)
        self.noise_scale, self.noise_clip = td3.hp.target_noise, td3.hp.target_noise_clip

    def gradient(self, name: str, loss: Callable[..., Any], rows: Transitions) -> Any:
        with np.errstate(all="ignore"):  # the guard reports non-finite values, and names the tensor
            return self.critics_gradient(rows) if name == "critics" else self.actor_gradient(rows)

    def critics_gradient(self, rows: Transitions) -> CriticStep:
        """Gradient of `critic_loss` towards the target critics' values of the smoothed target actions."""
        next_features = encode(self.backbone, rows.next_obs)
        actions = self.with_noise(np.tanh(forward(self.target_actor, next_features)[-1]))
        next_values = lowest_values(self.targets, next_features, actions)
        return critics_gradient(self.critics, encode(self.backbone, rows.obs), rows, next_values)

    def with_noise(self, actions: Array) -> Array:
        """The target actor's actions, smoothed unless the noise is 0."""
        if self.noise_scale == 0.0:
            return actions
        noise = torch.from_numpy(self.rng.standard_normal(actions.shape, dtype=np.float32))
        return smoothed(torch.from_numpy(actions), noise, self.noise_scale, self.noise_clip).numpy()

    def actor_gradient(self, rows: Transitions) -> ActorStep:
        """Gradient of minus the first critic's value."""
        features = encode(self.backbone, rows.obs)
        outputs = forward(self.actor, features)
        actions = np.tanh(outputs[-1])
        values, by_actions = first_values_gradient(self.critics, features, actions)
        backward(self.actor, outputs, by_actions * (np.float32(-1.0 / len(features)) * (1.0 - actions * actions)))
        return ActorStep(-mean(values))
