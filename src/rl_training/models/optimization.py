"""Stepping an optimiser: learning rate, gradient clipping, and its state by parameter name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.types import StateDict


def make_adam(module: nn.Module, eps: float) -> torch.optim.Adam:
    """Adam over every parameter of `module` once; the fused kernel is several times faster for small networks."""
    return torch.optim.Adam(module.parameters(), lr=0.0, eps=eps, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def clip_gradients(module: nn.Module, max_norm: float | None) -> Tensor:
    """The global gradient norm before clipping; gradients are scaled down to `max_norm` if that is a number."""
    parameters = [p for p in module.parameters() if p.grad is not None]
    if max_norm is None:
        return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    return nn.utils.clip_grad_norm_(parameters, max_norm)


def optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module) -> StateDict:
    """Moments and step counts by parameter name, so that the order of parameters does not matter on the way back."""
    return {
        name: {key: value.detach().cpu().numpy() for key, value in optimizer.state[parameter].items()}
        for name, parameter in module.named_parameters()
        if parameter in optimizer.state
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module, state: Mapping[str, Any]) -> None:
    """The inverse of `optimizer_state`."""
    parameters = dict(module.named_parameters())
    optimizer.state.clear()
    for name, values in state.items():
        parameter = parameters[name]
        restored = {key: torch.from_numpy(np.array(value)) for key, value in values.items()}
        # Adam keeps its step count on the host unless fused; either way it moves with the parameter's device here
        optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in restored.items()}
