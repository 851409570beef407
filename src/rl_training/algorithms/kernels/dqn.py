"""DQN's gradient in closed form: the numbers of autograd through `dqn_loss`, several times faster for small networks.

The network's two passes are in `kernels/mlp.py`; here are the targets and the gradient of the Huber loss
between them. `dqn_loss` stays the reference: a test holds this file to it, and `hparams.kernel: reference` uses it.

It fits a tanh or ReLU MLP with one value per action on the CPU, double or not; dueling, noisy and distributional
networks take the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.dqn import DQN, QStep
from rl_training.algorithms.kernels.mlp import backward, encode, forward, is_plain, layers_of, mean
from rl_training.algorithms.off_policy import Transitions
from rl_training.models.action_values import ActionValues, QShape
from rl_training.models.backbones.mlp import MLP
from rl_training.types import ACTION_MASK, DictSpec


def fits(dqn: DQN) -> bool:
    """True if this kernel computes what the networks of `dqn` compute."""
    observation_space = dqn.ctx.observation_space
    masked = isinstance(observation_space, DictSpec) and ACTION_MASK in observation_space.spaces
    own = dqn.learners["q"].network is dqn.q
    return own and not masked and all(map(is_plain_q, (dqn.q, dqn.targets["q"].network)))


def is_plain_q(network: nn.Module) -> bool:
    """True for an MLP on the CPU with one value per action."""
    if type(network) is not ActionValues or network.shape != QShape(network.shape.actions):
        return False
    on_cpu = all(parameter.device.type == "cpu" for parameter in network.parameters())
    return on_cpu and type(network.advantage) is nn.Linear and is_plain(network.backbone)


class FastKernel:
    """Loss and gradient of a batch for one network and its target; see `kernel_choice.Kernel`."""

    def __init__(self, dqn: DQN) -> None:
        online, target = dqn.q, dqn.targets["q"].network
        assert isinstance(target, ActionValues)
        assert isinstance(online.backbone, MLP)
        assert isinstance(target.backbone, MLP)
        self.backbone = online.backbone
        self.online = layers_of(online.backbone, online.advantage)
        self.target = layers_of(target.backbone, target.advantage)
        self.double = dqn.hp.double

    @np.errstate(all="ignore")  # the guard reports non-finite values, and names the tensor
    def gradient(self, name: str, loss: Callable[..., Any], rows: Transitions) -> Any:
        """Write the gradient of the mean of `dqn_loss` into the parameters' gradients."""
        obs, next_obs = encode(self.backbone, rows.obs), encode(self.backbone, rows.next_obs)
        batch, count = np.arange(len(obs)), len(obs)
        following = forward(self.target, next_obs)[-1]  # (B, A)
        if self.double:  # the online network sees both observations in one pass
            both = forward(self.online, np.concatenate([obs, next_obs]))
            outputs, chooser = [y[:count] for y in both], both[-1][count:]
        else:
            outputs, chooser = forward(self.online, obs), following
        futures = (1.0 - rows.terminated.numpy()) * following[batch, chooser.argmax(axis=1)]
        targets = rows.rewards.numpy() + rows.discounts.numpy() * futures
        actions = rows.actions.numpy().reshape(-1)
        values = outputs[-1][batch, actions]
        errors = values - targets
        sizes = np.abs(errors)
        losses = np.where(sizes <= 1.0, 0.5 * errors * errors, sizes - 0.5)
        by_value = np.minimum(np.maximum(errors, -1.0), 1.0) * np.float32(1.0 / count)
        if rows.weights is not None:
            losses, by_value = losses * rows.weights.numpy(), by_value * rows.weights.numpy()
        gradient = np.zeros_like(outputs[-1])
        gradient[batch, actions] = by_value
        backward(self.online, outputs, gradient)
        return QStep(mean(losses), mean(values), float(sizes.mean()), torch.from_numpy(sizes))
