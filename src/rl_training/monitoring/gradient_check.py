"""Checks gradients against finite differences, for any algorithm that learns with autograd.

An update is run again and again from the same state up to one of its `backward()` calls, with one parameter moved a
little way along a direction. How much the loss changes must be what autograd says. Parameters are moved only while a
graph is recorded, so targets, old log-probabilities and whatever else is computed without gradients stay what they are:
the check is of the gradient that the algorithm means to follow. All in the network's own precision, so it finds wrong
formulas, signs and missing terms, not rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.seeding import stream
from rl_training.types import Batch

STEP = 5e-3
"""How far a parameter is moved, in the norm of all its numbers."""
TOLERANCE = 0.05
"""Share by which the two may differ."""
KINKS = 0.01
"""Tolerance for the kinks of ReLUs, as a share of the gradient norm."""
ROUNDING = 3e-6
"""Rounding error of a loss of size 1."""
MAX_LOSSES = 3
"""Number of `backward()` calls of an update that are checked; later ones repeat them."""


@dataclass(frozen=True)
class GradientCheck:
    """The derivative of one loss along one direction of one parameter."""

    loss: int
    """Which `backward()` of the update, counted from 0."""
    parameter: str
    direction: str
    """gradient or random."""
    autograd: float
    differences: float | None
    """None where the parameter is not used by the forward of the module that owns it, so nothing can be said."""
    ok: bool


class _StopError(Exception):
    """The loss that was asked for has been computed."""


def check_gradients(
    update: Callable[[Batch], Any], batch: Batch, module: nn.Module, restore: Callable[[], None]
) -> list[GradientCheck]:
    """Check the first losses of `update(batch)` in every parameter of `module` that they reach.

    `restore` brings the algorithm back to one and the same state; it is called before every run and at the end.
    """
    rng = stream(0, "gradient check")
    owners = {name: (owner, parameter) for name, owner, parameter in owned_parameters(module)}
    try:
        recorded = _recorded(update, batch, {name: parameter for name, (_, parameter) in owners.items()}, restore)
        found = []
        for number, (loss, gradients) in enumerate(recorded):
            for name, gradient in gradients.items():
                owner, parameter = owners[name]
                noise = torch.from_numpy(np.asarray(rng.standard_normal(gradient.shape), np.float32)).to(gradient)
                for kind, towards in (("gradient", gradient), ("random", noise)):
                    direction = towards / torch.linalg.vector_norm(towards)
                    expected = float((gradient * direction).sum())
                    move = _Move(owner, parameter, direction, number)
                    slope = _slope(update, batch, move, restore)
                    allowed = ROUNDING * (1.0 + abs(loss)) / STEP + KINKS * float(torch.linalg.vector_norm(gradient))
                    close = slope is None or abs(slope - expected) <= TOLERANCE * abs(expected) + allowed
                    found.append(GradientCheck(number, name, kind, expected, slope, close))
        return found
    finally:
        restore()


def owned_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Module, Tensor]]:
    """Every parameter once, with the module it belongs to."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for owner in module.modules():
        for _, parameter in owner.named_parameters(recurse=False):
            if name := names.pop(id(parameter), None):
                yield name, owner, parameter


@contextmanager
def watched_backward(look: Callable[[Tensor, Callable[[], None]], None]) -> Iterator[None]:
    """Inside, `loss.backward()` calls `look(loss, backward)` instead."""
    original: Any = torch.Tensor.backward

    def backward(loss: Tensor, *arguments: Any, **keywords: Any) -> None:
        look(loss, lambda: original(loss, *arguments, **keywords))

    torch.Tensor.backward = backward  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        torch.Tensor.backward = original  # type: ignore[method-assign]


def _recorded(
    update: Callable[[Batch], Any], batch: Batch, parameters: Mapping[str, Tensor], restore: Callable[[], None]
) -> list[tuple[float, dict[str, Tensor]]]:
    """The first losses of an update, and what each added to the gradients."""
    found: list[tuple[float, dict[str, Tensor]]] = []

    def gradient(parameter: Tensor) -> Tensor:
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach().clone()

    def look(loss: Tensor, backward: Callable[[], None]) -> None:
        before = {name: gradient(parameter) for name, parameter in parameters.items()}
        backward()
        added = {name: gradient(parameter) - before[name] for name, parameter in parameters.items()}
        found.append((float(loss.detach()), {name: value for name, value in added.items() if value.abs().max() > 0}))
        if len(found) == MAX_LOSSES:
            raise _StopError

    restore()
    with watched_backward(look):
        try:
            update(batch)
        except _StopError:
            return found
    return found


@dataclass
class _Move:
    """Moves a parameter while its module records a graph, once `after` losses are through."""

    owner: nn.Module
    parameter: Tensor
    direction: Tensor
    after: int
    distance: float = 0.0
    losses: int = 0
    moved: bool = False
    used: bool = False

    def before_forward(self, *_: Any) -> None:
        self.put(torch.is_grad_enabled() and self.losses == self.after)

    def put(self, moved: bool) -> None:
        if moved != self.moved:
            self.parameter.data.add_(self.direction, alpha=self.distance if moved else -self.distance)
        self.moved = moved
        self.used = self.used or moved


def _slope(update: Callable[[Batch], Any], batch: Batch, move: _Move, restore: Callable[[], None]) -> float | None:
    """(loss at +STEP - loss at -STEP) / 2 STEP; None where the parameter was never moved."""
    values = []
    for distance in (STEP, -STEP):
        restore()
        move.distance, move.losses, move.moved = distance, 0, False

        def look(loss: Tensor, backward: Callable[[], None]) -> None:
            if move.losses == move.after:
                values.append(float(loss.detach().double()))
                raise _StopError
            backward()
            move.losses += 1

        handle = move.owner.register_forward_pre_hook(move.before_forward)
        try:
            with watched_backward(look):
                update(batch)
        except _StopError:
            move.put(False)
        finally:
            handle.remove()
    return (values[0] - values[1]) / (2 * STEP) if move.used and len(values) == 2 else None
