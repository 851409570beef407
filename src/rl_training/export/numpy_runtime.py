"""A trained policy in plain NumPy. `Policy("policy.npz")` reads one; this file needs nothing beside it.

    policy = Policy()
    action = policy.act(obs)            # one observation, as the environment gives it
    policy.reset()                      # before the next episode, where the policy remembers

Batches of observations and a carry of your own go through `run`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Policy:
    """The greedy policy of a file `policy.npz`."""

    def __init__(self, path: str | Path | None = None) -> None:
        with np.load(path or Path(__file__).with_name("policy.npz"), allow_pickle=False) as arrays:
            graph = json.loads(bytes(arrays["graph.json"]))
            self.constants = {name: arrays[name] for name in arrays.files if name != "graph.json"}
        self.inputs, self.outputs, self.meta = graph["inputs"], graph["outputs"], graph["meta"]
        self.nodes = [tuple(node) for node in graph["nodes"]]
        self.reset()

    def initial_carry(self, count: int) -> dict[str, Any]:
        """What `count` rows remember at the start of an episode; empty for a policy without memory."""
        carry = [value for value in self.inputs if value[0].startswith("carry/")]
        return {name: np.zeros((count, *shape), dtype) for name, dtype, shape in carry}

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name for inputs by name, each with a row per observation."""
        typed = {name: np.asarray(feeds[name], dtype) for name, dtype, _ in self.inputs}
        values = evaluate(self.nodes, {**self.constants, **typed})
        return {name: values[name] for name, _, _ in self.outputs}

    def reset(self) -> None:
        """A new episode starts: forget the last one."""
        self.carry, self.is_first = self.initial_carry(1), True

    def act(self, obs: Any) -> Any:
        """The action for one observation: an array, or a dict of them."""
        by_name = {"obs": obs}
        if isinstance(obs, dict):
            by_name = {"action_mask" if key == "action_mask" else f"obs/{key}": value for key, value in obs.items()}
        feeds = {name: np.asarray(value)[None] for name, value in by_name.items()}
        outputs = self.run({**feeds, **self.carry, "is_first": np.array([self.is_first])})
        self.carry = {name: outputs[f"next_{name}"] for name in self.carry}
        self.is_first = False
        return outputs["actions"][0]


def evaluate(nodes: Iterable[tuple[Any, ...]], values: Mapping[str, Any]) -> dict[str, Any]:
    """All values of a graph: `nodes` are (kind, inputs, output, attributes) in the order they are computed."""
    found = dict(values)
    for kind, inputs, output, attributes in nodes:
        found[output] = OPERATIONS[kind](*(found[name] for name in inputs), **attributes)
    return found


def _gemm(x: Any, weight: Any, bias: Any, transB: int = 0) -> Any:  # noqa: N803 (ONNX names the attribute)
    return x @ (weight.T if transB else weight) + bias


def _windows(x: Any, kernel: Any, strides: Any, pads: Any, fill: float) -> Any:
    """(N, C, H, W) to its windows (N, C, rows, columns, kernel height, kernel width)."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axis=(2, 3))
    return windows[:, :, :: strides[0], :: strides[1]]


def _conv(x: Any, weight: Any, bias: Any, strides: Any, pads: Any) -> Any:
    windows = _windows(x, weight.shape[2:], strides, pads, 0.0)
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, weight[0].size)
    summed = rows @ weight.reshape(len(weight), -1).T + bias
    return summed.reshape(len(x), *windows.shape[2:4], len(weight)).transpose(0, 3, 1, 2)


def _max_pool(x: Any, kernel_shape: Any, strides: Any, pads: Any) -> Any:
    return _windows(x, kernel_shape, strides, pads, -np.inf).max(axis=(4, 5))


def _layer_normalization(x: Any, scale: Any, bias: Any, axis: int, epsilon: float) -> Any:
    centred = x - x.mean(axis, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis, keepdims=True) + np.float32(epsilon)) * scale + bias


def _softmax(x: Any, axis: int) -> Any:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _slice(x: Any, start: Any, end: Any, axis: Any) -> Any:
    index: list[Any] = [slice(None)] * x.ndim
    index[int(axis[0])] = slice(int(start[0]), int(end[0]))
    return x[tuple(index)]


def _erf(x: Any) -> Any:
    return np.array([math.erf(value) for value in x.ravel()], x.dtype).reshape(x.shape)


OPERATIONS: dict[str, Any] = {
    "Add": lambda x, y: x + y,
    "ArgMax": lambda x, axis, keepdims: x.argmax(axis, keepdims=bool(keepdims)),
    "Cast": lambda x, to: x.astype(to),
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Conv": _conv,
    "Div": lambda x, y: x / y,
    "Elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "Equal": lambda x, y: x == y,
    "Erf": _erf,
    "Gather": lambda x, indices, axis: x.take(indices, axis),
    "Gemm": _gemm,
    "Greater": lambda x, y: x > y,
    "Identity": lambda x: x,
    "LayerNormalization": _layer_normalization,
    "LeakyRelu": lambda x, alpha: np.where(x > 0, x, x.dtype.type(alpha) * x),
    "Max": np.maximum,
    "MaxPool": _max_pool,
    "Min": np.minimum,
    "Mul": lambda x, y: x * y,
    "ReduceMean": lambda x, axes, keepdims: x.mean(tuple(axes), keepdims=bool(keepdims)),
    "ReduceSum": lambda x, axes, keepdims: x.sum(tuple(axes), keepdims=bool(keepdims)),
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": lambda x, shape: x.reshape(tuple(shape)),
    "Sigmoid": lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,
    "Slice": _slice,
    "Softmax": _softmax,
    "Sub": lambda x, y: x - y,
    "Tanh": np.tanh,
    "Transpose": lambda x, perm: x.transpose(perm),
    "Where": np.where,
}
"""Operations of ONNX by name, for the attributes that the graphs of this package use."""
