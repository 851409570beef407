"""A digest of nested states, equal only where every array, number and name is."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


def state_hash(state: Any) -> str:
    """SHA-256 of nested dicts of arrays and scalars."""
    digest = hashlib.sha256()

    def add(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                add(value[key], f"{path}/{key}")
        elif isinstance(value, np.ndarray):
            digest.update(f"{path}:{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        elif hasattr(value, "arrays"):  # the rows of a replay buffer
            add({"start": value.start, "stop": value.stop, **value.arrays()}, path)
        else:
            digest.update(f"{path}:{value!r}".encode())

    add(state, "")
    return digest.hexdigest()
