"""One rule for all hand-written kernels: they stand in for the package's own losses and parts, never for yours.

A kernel writes down the gradient of one particular loss of one particular network. An algorithm that overrides a loss,
replaces a part of itself or a function that the loss is made of means something else, and gets autograd, which computes
whatever is written. Each algorithm with a kernel names what that stands in for, once, below its class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn


class Reference:
    """The readable code of `owner` that its kernel stands in for: methods, and functions of the same module."""

    def __init__(self, owner: type, methods: Iterable[str], functions: Iterable[Callable[..., Any]]) -> None:
        self.methods = {name: getattr(owner, name) for name in methods}
        self.functions = {function.__name__: function for function in functions}
        self.module: Mapping[str, Any] = vars(sys.modules[owner.__module__])

    def is_meant(self, algorithm: object, parts: Iterable[object]) -> bool:
        """Whether an algorithm still computes this: no method overridden, no function replaced, no part of others."""
        methods = all(getattr(type(algorithm), name) is method for name, method in self.methods.items())
        functions = all(self.module.get(name) is function for name, function in self.functions.items())
        on_the_object = vars(algorithm).keys() & self.methods.keys()
        return methods and functions and not on_the_object and all(map(is_ours, parts))


@contextmanager
def set_aside(algorithm: Any) -> Iterator[None]:
    """Inside, an algorithm has no kernel: hand-written gradients pass through no modules that could be inspected."""
    kernel, algorithm.kernel = algorithm.kernel, None
    try:
        yield
    finally:
        algorithm.kernel = kernel


def is_ours(part: object) -> bool:
    """A part made of the package's and torch's own classes, layer by layer, without a method replaced on the object."""
    layers: Iterable[object] = part.modules() if isinstance(part, nn.Module) else (part,)
    return all(
        type(layer).__module__.split(".")[0] in ("rl_training", "torch") and not replaced(layer) for layer in layers
    )


def replaced(part: object) -> bool:
    """Whether attributes of the object hide methods of its class."""
    return any(callable(getattr(type(part), name, None)) for name in vars(part))
