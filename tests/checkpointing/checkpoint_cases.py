"""Distinct states, bitwise equality of states, and forged checkpoints with valid checksums."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.types import CheckpointError


def parts_of(step: int, size: int = 6) -> dict[str, Any]:
    """The parts of a small run; every file of two steps differs."""
    rng = np.random.default_rng(step)
    weight = rng.standard_normal((size, 4)).astype(np.float32)
    return {
        "policy": {"net": {"0.weight": weight, "0.bias": rng.standard_normal(4)}, "tied": weight},
        "optimizer": {"exp_avg": {"0.weight": weight * 2}, "lr": 3e-4, "step": step},
        "progress": {"env_steps": step, "word": 2**100 + step, "nothing": float("nan")},
    }


def assert_same(actual: Any, expected: Any, path: str = "state") -> None:
    """Assert equal types, key orders, dtypes, shapes and bits; byte order and memory layout may differ."""
    if isinstance(expected, np.ndarray):
        assert isinstance(actual, np.ndarray), path
        little = np.asarray(expected, dtype=expected.dtype.newbyteorder("<"), order="C")
        assert actual.dtype == little.dtype, path
        assert actual.shape == little.shape, path
        assert actual.tobytes() == little.tobytes(), path
        return
    assert type(actual) is type(expected), path
    if isinstance(expected, dict):
        assert list(actual) == list(expected), path
        for key in expected:
            assert_same(actual[key], expected[key], f"{path}[{key!r}]")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), path
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, e, f"{path}[{i}]")
    elif isinstance(expected, float):
        assert struct.pack("<d", actual) == struct.pack("<d", expected), path
    else:
        assert actual == expected, path


def saved_run(run_dir: Path, steps: tuple[int, ...], **keywords: Any) -> CheckpointManager:
    """A run with a checkpoint at each of `steps`."""
    manager = CheckpointManager(run_dir, **keywords)
    for step in steps:
        manager.save(parts_of(step), step=step, metadata={"score": float(step)})
    return manager


def folder_of(run_dir: Path, step: int) -> Path:
    return run_dir / "checkpoints" / f"step_{step:012d}"


def names_in(run_dir: Path) -> set[str]:
    return {path.name for path in (run_dir / "checkpoints").iterdir()}


def refusal(action: Callable[[], object]) -> str:
    """The message of the CheckpointError that `action` must raise."""
    try:
        action()
    except CheckpointError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def forge_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest and give it a valid checksum again, as an attacker would."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    del manifest["sha256"]
    change(manifest)
    body = (json.dumps(manifest, indent=1) + "\n").encode().removeprefix(b"{\n")
    head, tail = b'{\n "sha256": "', b'",\n'
    digest = hashlib.sha256(head + b"0" * 64 + tail + body).hexdigest().encode()
    (folder / "manifest.json").write_bytes(head + digest + tail + body)


def forge_file(folder: Path, name: str, data: bytes) -> None:
    """Replace a file and enter it in the manifest, so that every checksum is valid."""
    (folder / name).write_bytes(data)
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    forge_manifest(folder, lambda manifest: manifest["files"].update({name: entry}))


def blob(header: Any, data: bytes = b"") -> bytes:
    """A safetensors file with this header, valid or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data
