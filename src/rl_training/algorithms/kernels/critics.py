"""What the fast kernels of the actor-critics share: the loss of E critics, and gradients of values by actions."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.kernels.mlp import (
    Linear,
    backward,
    forward,
    input_gradient,
    is_plain,
    is_plain_ensemble,
    mean,
)
from rl_training.algorithms.off_policy import CriticStep, Transitions
from rl_training.models.backbones.mlp import MLP
from rl_training.models.critics import QCritics
from rl_training.types import Array


def has_plain_networks(backbone: nn.Module, output: nn.Module, *ensembles: nn.Module) -> bool:
    """True if the kernels compute what an actor's backbone and last layer and these critics compute."""
    on_cpu = all(parameter.device.type == "cpu" for ensemble in ensembles for parameter in ensemble.parameters())
    plain = is_plain(backbone) and type(output) is nn.Linear
    alike = plain and all(is_plain_ensemble(critics) and sees_alike(backbone, critics) for critics in ensembles)
    return on_cpu and alike


def sees_alike(backbone: nn.Module, critics: nn.Module) -> bool:
    """True if actor and critics are shown the same observations, which the kernels then encode once."""
    assert isinstance(backbone, MLP)
    assert isinstance(critics, QCritics)
    return critics.encoder is not None and backbone.leaves.keys() == critics.encoder.leaves.keys()


def values_of(critics: list[Linear], features: Array, actions: Array) -> list[Array]:
    """Outputs of every layer; the last are the values (E, B, 1)."""
    return forward(critics, np.concatenate([features, actions], axis=1))


def lowest_values(critics: list[Linear], features: Array, actions: Array) -> Array:
    """The smallest of the E values of each row, (B,)."""
    return np.asarray(values_of(critics, features, actions)[-1].min(axis=0)[:, 0])


def critics_gradient(critics: list[Linear], features: Array, rows: Transitions, next_values: Array) -> CriticStep:
    """Gradient of `critic_loss` towards `td_targets` of these next values (B,)."""
    targets = rows.rewards.numpy() + rows.discounts.numpy() * (1.0 - rows.terminated.numpy()) * next_values
    count = len(targets)
    outputs = values_of(critics, features, rows.actions.numpy().reshape(count, -1))
    values = outputs[-1][..., 0]  # (E, B)
    errors = values - targets
    losses, by_values = 0.5 * (errors * errors).sum(0), errors * np.float32(1.0 / count)
    if rows.weights is not None:
        losses, by_values = losses * rows.weights.numpy(), by_values * rows.weights.numpy()
    backward(critics, outputs, by_values[..., None])
    return CriticStep(mean(losses), mean(values.reshape(-1)), torch.from_numpy(errors))


def lowest_values_gradient(critics: list[Linear], features: Array, actions: Array) -> tuple[Array, Array]:
    """The smallest value of each row (B,), and its gradient with respect to the action (B, A)."""
    outputs = values_of(critics, features, actions)
    values = outputs[-1]
    gradient = np.zeros_like(values)
    np.put_along_axis(gradient, values.argmin(axis=0)[None], 1.0, axis=0)
    by_inputs = input_gradient(critics, outputs, gradient).sum(axis=0)
    return values.min(axis=0)[:, 0], by_inputs[:, features.shape[1] :]


def first_values_gradient(critics: list[Linear], features: Array, actions: Array) -> tuple[Array, Array]:
    """The first critic's value of each row (B,), and its gradient with respect to the action (B, A)."""
    first = [layer._replace(weight=layer.weight[0], bias=layer.bias[0]) for layer in critics]
    outputs = values_of(first, features, actions)
    by_inputs = input_gradient(first, outputs, np.ones_like(outputs[-1]))
    return outputs[-1][:, 0], by_inputs[:, features.shape[1] :]
