"""A greedy policy as a graph of a few dozen array operations, whatever library trained it.

Operations have the names, inputs and attributes of ONNX, opset 18. The inputs are raw observations: normaliser, action
mask, memory, squashing and bounds are nodes of the graph. `run_numpy` is the reference that every emitted file is held
to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from rl_training.export.numpy_runtime import evaluate
from rl_training.types import Array

OPSET = 18
"""Version of the ONNX operators that graphs are made of."""


class Value(NamedTuple):
    """An input or output: rows of any number, each with this shape."""

    name: str
    dtype: str
    """As NumPy spells it: float32, int64, uint8, bool."""
    shape: tuple[int, ...]
    """Without the first axis, which is the batch."""


class Node(NamedTuple):
    """One operation; its result is one array."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]


class PolicyGraph(NamedTuple):
    """A greedy policy: raw observations, and with memory a carry and `is_first`, to actions and the next carry.

    Inputs are `obs` or, of a Dict, `obs/KEY`; `action_mask`; with memory `is_first` and `carry/NAME`. Outputs are
    `actions` as the environment takes them, `logits` (masked) where actions are discrete, and `next_carry/NAME`.
    """

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    outputs: tuple[Value, ...]
    meta: Mapping[str, str]
    """What is known about the policy, by name; the same for two exports of one checkpoint."""

    def with_meta(self, meta: Mapping[str, str]) -> PolicyGraph:
        """The same graph with more said about it."""
        return self._replace(meta={**self.meta, **meta})


@runtime_checkable
class HasGraph(Protocol):
    """A policy that can say what it computes."""

    def graph(self) -> PolicyGraph | None:
        """The greedy policy as a graph; None where its network is not made of the operations of one."""


def run_numpy(graph: PolicyGraph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a graph for these inputs, by name."""
    nodes = [(node.kind, node.inputs, node.output, node.attributes) for node in graph.nodes]
    values = evaluate(nodes, {**graph.constants, **feeds})
    return {output.name: values[output.name] for output in graph.outputs}


class GraphBuilder:
    """Adds operations one after the other; a value is the name that an operation returned."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}

    def input(self, name: str, dtype: Any, shape: tuple[int, ...]) -> str:
        """Declare an input; returns its name."""
        self.inputs.append(Value(name, np.dtype(dtype).name, shape))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """An array that is part of the graph."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(value, dtype, order="C")
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """One more operation; returns the name of its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(Node(kind, inputs, name, attributes))
        return name

    def output(self, name: str, value: str, dtype: Any, shape: tuple[int, ...]) -> None:
        """Give a value away under this name."""
        self.nodes.append(Node("Identity", (value,), name, {}))
        self.outputs.append(Value(name, np.dtype(dtype).name, shape))

    def finished(self, meta: Mapping[str, str]) -> PolicyGraph:
        """The graph as it stands."""
        constants = dict(self.constants)
        return PolicyGraph(tuple(self.inputs), tuple(self.nodes), constants, tuple(self.outputs), dict(meta))

    # -- operations that need constants of their own ------------------------------------------------------------------

    def cast(self, value: str, dtype: Any) -> str:
        return self.add("Cast", value, to=np.dtype(dtype).name)

    def reshape(self, value: str, *shape: int) -> str:
        """Rows of this shape."""
        return self.add("Reshape", value, self.constant((-1, *shape), np.int64))

    def columns(self, value: str, start: int, end: int) -> str:
        """Entries start .. end-1 of the second axis."""
        bounds = [self.constant([number], np.int64) for number in (start, end, 1)]
        return self.add("Slice", value, *bounds)

    def joined(self, values: list[str]) -> str:
        """Side by side along the second axis."""
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=1)

    def affine(self, value: str, weight: Array, bias: Array) -> str:
        """value @ weight.T + bias."""
        return self.add("Gemm", value, self.constant(weight), self.constant(bias), transB=1)

    def clipped(self, value: str, low: Any, high: Any, dtype: Any) -> str:
        return self.add("Min", self.add("Max", value, self.constant(low, dtype)), self.constant(high, dtype))

    def one_hot(self, value: str, count: int, axes: int = 2) -> str:
        """Whole numbers to 1 at their place along the second axis, which has length 1 before."""
        places = np.arange(count).reshape(1, count, *(1,) * (axes - 2))
        return self.cast(self.add("Equal", self.cast(value, np.int64), self.constant(places, np.int64)), np.float32)
