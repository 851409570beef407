"""Policy graphs as ONNX files, and such a file as a function. The only module that imports onnx and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rl_training.export.graph import OPSET, PolicyGraph, Value
from rl_training.types import Array, ConfigError

IR_VERSION = 8
"""Version of the file format: the oldest that opset 18 goes with, so that old runtimes read it."""
NEEDS_EXTRA = "format onnx needs an extra: pip install 'rl-training[export]' ({})"


def onnx_bytes(graph: PolicyGraph) -> bytes:
    """The file: the same bytes for the same graph. The first axis of every input and output is free."""
    try:
        from onnx import checker, helper, numpy_helper
    except ImportError as error:
        raise ConfigError(NEEDS_EXTRA.format(error)) from error

    def element(dtype: str) -> int:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def described(value: Value) -> Any:
        return helper.make_tensor_value_info(value.name, element(value.dtype), ["batch", *value.shape])

    nodes = []
    for node in graph.nodes:
        attributes = dict(node.attributes)
        if node.kind == "Cast":
            attributes["to"] = element(attributes["to"])
        nodes.append(helper.make_node(node.kind, list(node.inputs), [node.output], name=node.output, **attributes))
    constants = [numpy_helper.from_array(value, name) for name, value in graph.constants.items()]
    inputs, outputs = ([described(value) for value in values] for values in (graph.inputs, graph.outputs))
    body = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="rl_training")
    model.ir_version = IR_VERSION
    helper.set_model_props(model, dict(sorted(graph.meta.items())))
    checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def onnx_runner(content: bytes) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """A file as a function from inputs to outputs, run by onnxruntime on one thread."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(NEEDS_EXTRA.format(error)) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = {value.name for value in session.get_inputs()}

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = {name: value for name, value in feeds.items() if name in wanted}
        return dict(zip(names, session.run(names, given), strict=True))

    return run
