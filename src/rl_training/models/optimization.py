"""Adam over a network's parameters as one flat vector: one kernel per operation instead of one per layer.

For small networks most of an update's time goes into launching tiny operations, and the first use of `torch.optim`
costs a second of imports. The arithmetic is that of `torch.optim.Adam`, operation by operation.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.types import Array, CheckpointError, StateDict


class FlatParameters:
    """Makes every parameter of `module` a view of one vector, and every gradient a view of another.

    Do this once, after the module is on its device and before anybody takes views of its weights.
    """

    def __init__(self, module: nn.Module) -> None:
        named = list(module.named_parameters())  # shared parameters once
        self.values = torch.cat([parameter.detach().reshape(-1) for _, parameter in named])
        self.grad = torch.zeros_like(self.values)
        self.slices: dict[str, tuple[slice, torch.Size]] = {}
        offset = 0
        for name, parameter in named:
            where = slice(offset, offset + parameter.numel())
            self.slices[name] = (where, parameter.shape)
            parameter.data = self.values[where].view(parameter.shape)
            parameter.grad = self.grad[where].view(parameter.shape)
            offset = where.stop

    def by_name(self, vector: Tensor) -> dict[str, Array]:
        """A vector of the same layout as arrays by parameter name."""
        host = vector.detach().cpu().numpy()
        return {name: host[where].reshape(tuple(shape)) for name, (where, shape) in self.slices.items()}

    @torch.no_grad()
    def fill(self, vector: Tensor, arrays: dict[str, Array]) -> None:
        """The inverse of `by_name`, in place."""
        if arrays.keys() != self.slices.keys():
            missing = sorted(self.slices.keys() ^ arrays.keys())
            raise CheckpointError(f"the optimiser state is of another network: {', '.join(missing)} do not match")
        for name, (where, _) in self.slices.items():
            vector[where] = torch.from_numpy(np.array(arrays[name])).reshape(-1).to(vector.device)


class Adam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) on flat parameters, with global-norm clipping."""

    def __init__(self, parameters: FlatParameters, *, eps: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self.parameters = parameters
        self.eps = eps
        self.betas = betas
        self.steps = 0
        self.mean = torch.zeros_like(parameters.values)
        self.square = torch.zeros_like(parameters.values)

    def zero_grad(self) -> None:
        self.parameters.grad.zero_()

    def grad_norm(self) -> Tensor:
        """The norm of all gradients together."""
        return cast(Tensor, torch.linalg.vector_norm(self.parameters.grad))

    @torch.no_grad()
    def clip(self, max_norm: float | None, norm: Tensor | None = None) -> Tensor:
        """The norm of the gradient, if it is not given; beyond `max_norm` the gradient is scaled down to it."""
        norm = self.grad_norm() if norm is None else norm
        if max_norm is None:
            return norm
        scale = max_norm / (norm + 1e-6)
        if not scale.is_cpu or scale < 1.0:  # reading it would stall a GPU; there the scale is capped instead
            self.parameters.grad.mul_(scale.clamp(max=1.0))
        return norm

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        beta1, beta2 = self.betas
        grad, self.steps = self.parameters.grad, self.steps + 1
        self.mean.lerp_(grad, 1.0 - beta1)
        self.square.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
        scale = (self.square.sqrt() / math.sqrt(1.0 - beta2**self.steps)).add_(self.eps)
        self.parameters.values.addcdiv_(self.mean, scale, value=-learning_rate / (1.0 - beta1**self.steps))

    def state_dict(self) -> StateDict:
        """Moments by parameter name, so that the order of parameters does not matter on the way back."""
        by_name = self.parameters.by_name
        return {"steps": self.steps, "mean": by_name(self.mean), "square": by_name(self.square)}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.steps = int(state["steps"])
        self.parameters.fill(self.mean, state["mean"])
        self.parameters.fill(self.square, state["square"])


def optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module) -> StateDict:
    """The state of any torch optimiser by parameter name, as arrays."""
    return {
        name: {key: torch.as_tensor(value).cpu().numpy() for key, value in optimizer.state[parameter].items()}
        for name, parameter in module.named_parameters()
        if parameter in optimizer.state
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module, state: StateDict) -> None:
    """The inverse of `optimizer_state`."""
    parameters = dict(module.named_parameters())
    optimizer.state.clear()
    for name, values in state.items():
        optimizer.state[parameters[name]] = {key: torch.from_numpy(np.array(value)) for key, value in values.items()}
