"""Policy graphs as two files, `policy.npz` and `policy.py`, that run with NumPy alone."""

from __future__ import annotations

import io
import json
import runpy
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.export import numpy_runtime
from rl_training.export.graph import PolicyGraph
from rl_training.types import Array

LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""Time of all members, so that two exports have the same bytes."""


def npz_bytes(graph: PolicyGraph) -> bytes:
    """`policy.npz`: the constants by name, and the graph as JSON in an array of bytes; no pickle."""
    described = {
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "nodes": [(node.kind, node.inputs, node.output, dict(node.attributes)) for node in graph.nodes],
        "meta": dict(sorted(graph.meta.items())),
    }
    text = json.dumps(described, separators=(",", ":")).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, value in {**graph.constants, "graph.json": np.frombuffer(text, np.uint8)}.items():
            array = io.BytesIO()
            np.lib.format.write_array(array, np.asarray(value), version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", LONG_AGO), array.getvalue())
    return content.getvalue()


def program_text() -> str:
    """`policy.py`: the interpreter, which is the one that graphs are tested with."""
    return Path(numpy_runtime.__file__).read_text(encoding="utf-8")


def numpy_runner(folder: Path) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The two files in a folder as a function from inputs to outputs, as a user would load them."""
    program: dict[str, Any] = runpy.run_path(str(folder / "policy.py"))
    policy = program["Policy"](folder / "policy.npz")
    run: Callable[[Mapping[str, Array]], dict[str, Array]] = policy.run
    return run
