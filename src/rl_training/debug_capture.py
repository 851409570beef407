"""One update in one file: the batch, the state before it and the config, so that it can be run again elsewhere.

The layout is safetensors, as in a checkpoint; reading one executes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rl_training.atomic_io import atomic_write
from rl_training.state_tree import FlatState, dump_json, flatten, parse_json, unflatten
from rl_training.tensor_blob import blob_chunks, parse_blob
from rl_training.types import CheckpointError, StateDict

META = "$meta"
"""Name of the array whose bytes are the JSON that belongs to the arrays."""


def save_capture(path: Path, state: StateDict) -> None:
    """Write a nested dict of arrays and JSON scalars, whole or not at all."""
    flat = flatten(state)
    meta = dump_json({"scalars": flat.scalars, "aliases": flat.aliases, "dtypes": flat.dtypes})
    arrays = {**flat.arrays, META: np.frombuffer(meta, np.uint8)}
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, b"".join(bytes(chunk) for chunk in blob_chunks(arrays)))


def load_capture(path: Path) -> dict[str, Any]:
    """What `save_capture` wrote; CheckpointError for anything else."""
    try:
        blob = np.fromfile(path, np.uint8)
    except OSError as error:
        raise CheckpointError(f"cannot read '{path}': {error.strerror}") from error
    arrays = {name: np.array(array) for name, array in parse_blob(blob, f"'{path}'").items()}
    if META not in arrays:
        raise CheckpointError(f"'{path}' is no captured update; debug mode writes them as debug/update_*.capture")
    meta = parse_json(arrays.pop(META).tobytes(), f"'{path}'")
    try:
        return unflatten(FlatState(arrays, meta["scalars"], meta["aliases"], meta["dtypes"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"'{path}' is damaged ({type(error).__name__})") from error
