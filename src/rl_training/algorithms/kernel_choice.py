"""The `Kernel` protocol: how gradients are computed, and one rule for when a hand-written kernel may be used.

Each algorithm has a `ReferenceKernel`, which is autograd of its readable loss. PPO, DQN, SAC, TD3 and DDPG also have a
`FastKernel` in `kernels/`, which writes down the gradient of one particular loss of one particular kind of network. A
subclass that overrides a loss or replaces a part, or a module whose functions were replaced, computes something else
and gets the reference, which computes whatever is written. An override always wins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from torch import nn

from rl_training.hparams.optimizer import ADAM, OptimizerConfig

Result = TypeVar("Result")


class Kernel(Protocol):
    """Computes gradients of an algorithm's losses, one network at a time."""

    def gradient(self, name: str, loss: Callable[..., Result], *inputs: Any) -> Result:
        """Put the gradient of `loss(*inputs)` where the optimiser of network `name` reads it.

        Returns what `loss` returns, without its autograd graph. A fast kernel does not call `loss`: it has the
        gradient of that loss in closed form.
        """


@contextmanager
def using_reference(algorithm: Any) -> Iterator[None]:
    """Inside, an algorithm with a kernel computes gradients by autograd, through modules that can be inspected."""
    kernel, algorithm.kernel = algorithm.kernel, algorithm.reference_kernel()
    try:
        yield
    finally:
        algorithm.kernel = kernel


class KernelHparams(Protocol):
    """Hyperparameters of an algorithm with a fast kernel."""

    @property
    def kernel(self) -> str: ...
    @property
    def optimizer(self) -> OptimizerConfig: ...


def allows_fast(hparams: KernelHparams) -> bool:
    """True if the config leaves the choice open; fast kernels write into the flat vector that Adam reads."""
    return hparams.kernel == "auto" and hparams.optimizer.type == ADAM


class Readable:
    """The readable code of `owner` that its fast kernel stands in for: methods, and functions of the same module."""

    def __init__(self, owner: type, methods: Iterable[str], functions: Iterable[Callable[..., Any]]) -> None:
        self.methods = {name: getattr(owner, name) for name in methods}
        self.functions = {function.__name__: function for function in functions}
        self.module: Mapping[str, Any] = vars(sys.modules[owner.__module__])

    def is_unchanged(self, algorithm: object, parts: Iterable[object]) -> bool:
        """True if no method is overridden, no function replaced, and every part is the package's own."""
        methods = all(getattr(type(algorithm), name) is method for name, method in self.methods.items())
        functions = all(self.module.get(name) is function for name, function in self.functions.items())
        on_the_object = vars(algorithm).keys() & self.methods.keys()
        return methods and functions and not on_the_object and all(map(is_ours, parts))


def is_ours(part: object) -> bool:
    """True for a part made of the package's and torch's own classes, layer by layer, with no method replaced."""
    layers: Iterable[object] = part.modules() if isinstance(part, nn.Module) else (part,)
    return all(
        type(layer).__module__.split(".")[0] in ("rl_training", "torch") and not has_replaced_method(layer)
        for layer in layers
    )


def has_replaced_method(part: object) -> bool:
    """True if an attribute of the object hides a method of its class."""
    return any(callable(getattr(type(part), name, None)) for name in vars(part))
