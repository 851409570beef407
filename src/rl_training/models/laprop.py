"""LaProp with adaptive gradient clipping: the optimiser of DreamerV3, on flat parameters.

Adam divides its momentum by the root mean square of the gradients; LaProp divides the gradient first and takes the
momentum of the result, so that a tiny epsilon is safe (Ziyin et al. 2020, arXiv:2002.04839). Adaptive gradient clipping
limits each tensor's gradient relative to the norm of that tensor (Brock et al. 2021, arXiv:2102.06171).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from rl_training.models.optimization import FlatOptimizer, FlatParameters
from rl_training.types import CheckpointError, ConfigError, StateDict

SMALLEST_NORM = 1e-3
"""Norm of a tensor below which clipping takes this instead: without it biases that start at 0 could never move."""


class LaProp(FlatOptimizer):
    """Adaptive gradient clipping, division by the bias-corrected RMS, then bias-corrected momentum."""

    def __init__(
        self,
        parameters: FlatParameters,
        *,
        agc: float | None = 0.3,
        eps: float = 1e-20,
        betas: tuple[float, float] | list[float] = (0.9, 0.999),
    ) -> None:
        super().__init__(parameters)
        if agc is not None and agc <= 0.0:
            raise ConfigError(f"agc, the largest ratio of a gradient's norm to its tensor's, must be > 0, not {agc!r}")
        self.agc = agc
        """Largest norm of a tensor's gradient relative to the tensor's own; None does not clip."""
        self.eps = eps
        self.betas = (float(betas[0]), float(betas[1]))
        self.steps = 0
        self.square = torch.zeros_like(parameters.values)
        self.momentum = torch.zeros_like(parameters.values)
        self._values = [parameter.detach() for parameter in parameters.named.values()]
        self._grads = [cast(Tensor, parameter.grad) for parameter in parameters.named.values()]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        beta1, beta2 = self.betas
        self.steps += 1
        if self.agc is not None:
            self._clip_each(self.agc)
        grad = self.parameters.grad
        self.square.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
        root = (self.square / (1.0 - beta2**self.steps)).sqrt_().add_(self.eps)
        self.momentum.lerp_(grad / root, 1.0 - beta1)
        self.parameters.values.add_(self.momentum, alpha=-learning_rate / (1.0 - beta1**self.steps))

    def _clip_each(self, ratio: float) -> None:
        """Scale the gradient of each tensor down to `ratio` times the norm of the tensor."""
        limits = torch.stack(torch._foreach_norm(self._values)).clamp_(min=SMALLEST_NORM).mul_(ratio)
        norms = torch.stack(torch._foreach_norm(self._grads))
        scales = 1.0 / (norms / limits).clamp_(min=1.0)
        for grad, scale in zip(self._grads, scales, strict=True):
            grad.mul_(scale)

    def tensors(self) -> Iterator[Tensor]:
        yield from (self.square, self.momentum)

    def state_dict(self) -> StateDict:
        by_name = self.parameters.by_name
        return {"steps": self.steps, "square": by_name(self.square), "momentum": by_name(self.momentum)}

    def load_state_dict(self, state: StateDict, /) -> None:
        if "momentum" not in state:
            raise CheckpointError("the optimiser state is of another optimiser; keep hparams.optimizer of the run")
        self.steps = int(state["steps"])
        self.parameters.fill(self.square, state["square"])
        self.parameters.fill(self.momentum, state["momentum"])


def warmed_up(learning_rate: float, updates: int, warmup_updates: int) -> float:
    """The learning rate of update number `updates` (from 0), rising linearly over the first `warmup_updates`.

    >>> [warmed_up(1.0, updates, 4) for updates in (0, 1, 4, 9)]
    [0.0, 0.25, 1.0, 1.0]
    """
    return learning_rate * min(1.0, updates / warmup_updates) if warmup_updates else learning_rate
