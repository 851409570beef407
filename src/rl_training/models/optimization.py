"""Optimisers: Adam over all parameters as one flat vector, and any `torch.optim` class behind the same verbs.

For small networks most of an update's time goes into launching tiny operations, and the first use of `torch.optim`
costs a second of imports; one flat vector needs one operation instead of one per layer. The arithmetic of `Adam` is
that of `torch.optim.Adam`, operation by operation. Fast kernels need it; every other optimiser takes autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.hparams.optimizer import ADAM, OptimizerConfig
from rl_training.registry import check_call, check_kwargs, optimizers
from rl_training.types import Array, CheckpointError, ConfigError, StateDict


class FlatParameters:
    """Makes every parameter of `module` a view of one vector, and every gradient a view of another.

    Do this once, after the module is on its device and before anything takes views of its weights.
    """

    def __init__(self, module: nn.Module) -> None:
        self.named = dict(module.named_parameters())  # shared parameters once
        self.channels_last = {name for name, parameter in self.named.items() if is_channels_last(parameter)}
        """Convolution weights in this memory format keep it; otherwise torch would reorder them at each call."""
        parts = [
            (parameter.permute(0, 2, 3, 1) if name in self.channels_last else parameter).detach().reshape(-1)
            for name, parameter in self.named.items()
        ]
        self.values = torch.cat(parts)
        self.grad = torch.zeros_like(self.values)
        self.slices: dict[str, tuple[slice, torch.Size]] = {}
        offset = 0
        for name, parameter in self.named.items():
            where = slice(offset, offset + parameter.numel())
            self.slices[name] = (where, parameter.shape)
            parameter.data = self._view(self.values, name)
            parameter.grad = self._view(self.grad, name)
            offset = where.stop

    def _view(self, vector: Tensor, name: str) -> Tensor:
        """One parameter's part of a vector in the parameter's shape and memory format."""
        where, shape = self.slices[name]
        if name not in self.channels_last:
            return vector[where].view(shape)
        filters, channels, height, width = shape
        return vector[where].view(filters, height, width, channels).permute(0, 3, 1, 2)

    def by_name(self, vector: Tensor) -> dict[str, Array]:
        """A vector of the same layout as arrays by parameter name."""
        host = vector.detach().cpu()
        return {name: np.ascontiguousarray(self._view(host, name).numpy()) for name in self.slices}

    @torch.no_grad()
    def fill(self, vector: Tensor, arrays: dict[str, Array]) -> None:
        """The inverse of `by_name`, in place."""
        if arrays.keys() != self.slices.keys():
            missing = sorted(self.slices.keys() ^ arrays.keys())
            raise CheckpointError(f"the optimiser state is of another network: {', '.join(missing)} do not match")
        for name in self.slices:
            view = self._view(vector, name)
            view.copy_(torch.from_numpy(np.array(arrays[name])).reshape(view.shape))


def is_channels_last(parameter: Tensor) -> bool:
    """Whether a weight or a batch of images is in channels_last format and not, as with one channel, in both."""
    return (
        parameter.dim() == 4
        and not parameter.is_contiguous()
        and parameter.is_contiguous(memory_format=torch.channels_last)
    )


class FlatOptimizer:
    """Gradients of one network as a flat vector: cleared, measured and clipped. A subclass writes `step`."""

    def __init__(self, parameters: FlatParameters) -> None:
        self.parameters = parameters

    def zero_grad(self) -> None:
        self.parameters.grad.zero_()

    def grad_norm(self) -> Tensor:
        """The norm of all gradients together."""
        return cast(Tensor, torch.linalg.vector_norm(self.parameters.grad))

    @torch.no_grad()
    def clip(self, max_norm: float | None, norm: Tensor | None = None) -> Tensor:
        """Scale the gradient down to `max_norm` if its norm is larger; returns the norm before."""
        norm = self.grad_norm() if norm is None else norm
        if max_norm is None:
            return norm
        scale = max_norm / (norm + 1e-6)
        if not scale.is_cpu or scale < 1.0:  # reading it would stall a GPU; there the scale is capped instead
            self.parameters.grad.mul_(scale.clamp(max=1.0))
        return norm

    def step(self, learning_rate: float) -> None:
        """Move the parameters along the gradient."""
        raise NotImplementedError("an optimiser steps")

    def tensors(self) -> Iterator[Tensor]:
        """State that must stay finite, for the guard."""
        raise NotImplementedError("an optimiser lists its state")

    def state_dict(self) -> StateDict:
        raise NotImplementedError("an optimiser saves its state by parameter name")

    def load_state_dict(self, state: StateDict, /) -> None:
        raise NotImplementedError("an optimiser restores its state by parameter name")


class Adam(FlatOptimizer):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) on flat parameters."""

    def __init__(self, parameters: FlatParameters, *, eps: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__(parameters)
        self.eps = eps
        self.betas = betas
        self.steps = 0
        self.mean = torch.zeros_like(parameters.values)
        self.square = torch.zeros_like(parameters.values)
        self.scratch = torch.empty_like(parameters.values)  # not state: large temporaries are dear to allocate

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        beta1, beta2 = self.betas
        grad, self.steps = self.parameters.grad, self.steps + 1
        self.mean.lerp_(grad, 1.0 - beta1)
        self.square.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
        scale = torch.sqrt(self.square, out=self.scratch).div_(math.sqrt(1.0 - beta2**self.steps)).add_(self.eps)
        self.parameters.values.addcdiv_(self.mean, scale, value=-learning_rate / (1.0 - beta1**self.steps))

    def tensors(self) -> Iterator[Tensor]:
        yield from (self.mean, self.square)

    def state_dict(self) -> StateDict:
        """Moments by parameter name, so that the order of parameters does not matter when they are restored."""
        by_name = self.parameters.by_name
        return {"steps": self.steps, "mean": by_name(self.mean), "square": by_name(self.square)}

    def load_state_dict(self, state: StateDict, /) -> None:
        if "steps" not in state:
            raise CheckpointError("the optimiser state is of another optimiser; keep hparams.optimizer of the run")
        self.steps = int(state["steps"])
        self.parameters.fill(self.mean, state["mean"])
        self.parameters.fill(self.square, state["square"])


class TorchOptimizer(FlatOptimizer):
    """A `torch.optim` optimiser on flat parameters; its step size is set at every step."""

    def __init__(self, parameters: FlatParameters, create: Callable[[list[nn.Parameter]], Any]) -> None:
        super().__init__(parameters)
        self.optimizer: torch.optim.Optimizer = create(list(parameters.named.values()))

    def step(self, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()

    def tensors(self) -> Iterator[Tensor]:
        for values in self.optimizer.state.values():
            yield from (value for value in values.values() if isinstance(value, Tensor) and value.is_floating_point())

    def state_dict(self) -> StateDict:
        """State by parameter name, and the numbers that some optimisers keep in their parameter groups."""
        groups = {
            str(number): {key: value for key, value in group.items() if isinstance(value, bool | int | float)}
            for number, group in enumerate(self.optimizer.param_groups)
        }
        return {"parameters": named_state(self.optimizer, self.parameters.named), "groups": groups}

    def load_state_dict(self, state: StateDict, /) -> None:
        if "parameters" not in state:
            raise CheckpointError("the optimiser state is of another optimiser; keep hparams.optimizer of the run")
        load_named_state(self.optimizer, self.parameters.named, state["parameters"])
        for number, values in state["groups"].items():
            self.optimizer.param_groups[int(number)].update(values)


def build_optimizer(
    parameters: FlatParameters, cfg: OptimizerConfig, *, eps: float, betas: tuple[float, float] = (0.9, 0.999)
) -> FlatOptimizer:
    """The optimiser that a config names; `eps` and `betas` are Adam's."""
    if cfg.type == ADAM:
        return Adam(parameters, eps=eps, betas=betas)
    what, creator = f"optimizer '{cfg.type}'", optimizers.get(cfg.type)
    if "lr" in cfg.kwargs:
        raise ConfigError("hparams.optimizer.kwargs.lr: the step size is hparams.learning_rate; set that instead")
    if isinstance(creator, type) and issubclass(creator, FlatOptimizer):
        check_kwargs(creator, cfg.kwargs, what, "hparams.optimizer.kwargs")
        return creator(parameters, **cfg.kwargs)

    def create(tensors: list[nn.Parameter]) -> Any:
        given = {"lr": 0.0, **cfg.kwargs}
        check_call(creator, what, {"parameters": tensors}, given)
        try:
            made = creator(tensors, **given)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{what} does not take hparams.optimizer.kwargs: {error}") from error
        if not isinstance(made, torch.optim.Optimizer):
            raise ConfigError(f"{what} made a {type(made).__name__}; it must be a torch.optim.Optimizer")
        return made

    return TorchOptimizer(parameters, create)


def optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module) -> StateDict:
    """The state of any torch optimiser by parameter name, as arrays."""
    return named_state(optimizer, dict(module.named_parameters()))


def load_optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module, state: StateDict) -> None:
    """The inverse of `optimizer_state`."""
    load_named_state(optimizer, dict(module.named_parameters()), state)


def named_state(optimizer: torch.optim.Optimizer, named: Mapping[str, nn.Parameter]) -> StateDict:
    """Arrays and numbers that an optimiser keeps for each parameter, by the parameter's name."""
    return {
        name: {key: as_state(value) for key, value in optimizer.state[parameter].items() if value is not None}
        for name, parameter in named.items()
        if parameter in optimizer.state
    }


def as_state(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else torch.as_tensor(value).cpu().numpy()


def load_named_state(optimizer: torch.optim.Optimizer, named: Mapping[str, nn.Parameter], state: StateDict) -> None:
    """The inverse of `named_state`. What has the shape of its parameter goes to the parameter's device."""
    strangers = sorted(state.keys() - named.keys())
    if strangers:
        raise CheckpointError(f"the optimiser state is of another network: {', '.join(strangers)} do not match")
    optimizer.state.clear()
    for name, values in state.items():
        parameter = named[name]
        optimizer.state[parameter] = {key: from_state(value, parameter) for key, value in values.items()}


def from_state(value: Any, parameter: Tensor) -> Any:
    if isinstance(value, bool | int | float):
        return value
    tensor = torch.from_numpy(np.array(value))
    return tensor.to(parameter.device) if tensor.shape == parameter.shape else tensor
