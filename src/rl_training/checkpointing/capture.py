"""A captured update in one file: the batch, the state before it and the config, so that it can be replayed elsewhere.

The format is safetensors, as in a checkpoint, with the SHA-256 of the file as one of its arrays; reading one executes
no code. The checksum is verified on disk before the file is read into memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rl_training.checkpointing.safetensors_format import blob_chunks, parse_blob, read_header
from rl_training.checkpointing.state_tree import FlatState, dump_json, flatten, parse_json, unflatten
from rl_training.checkpointing.verified_files import refuse_beyond_memory
from rl_training.system.atomic_io import CHUNK, atomic_write
from rl_training.types import Array, CheckpointError, StateDict

META, SEAL = "$meta", "$sha256"
"""Names of the array that holds the JSON beside the arrays, and of the one that holds the checksum, which is computed
with zeros in its place."""
SEAL_BYTES = 32


def save_capture(path: Path, state: StateDict) -> None:
    """Write a nested dict of arrays and JSON scalars atomically."""
    flat = flatten(state)
    meta = dump_json({"scalars": flat.scalars, "aliases": flat.aliases, "dtypes": flat.dtypes})
    seal = np.zeros(SEAL_BYTES, np.uint8)
    chunks = list(blob_chunks({**flat.arrays, META: np.frombuffer(meta, np.uint8), SEAL: seal}))
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    seal[:] = np.frombuffer(digest.digest(), np.uint8)  # one of the chunks is a view of it
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, b"".join(bytes(chunk) for chunk in chunks))


def load_capture(path: Path) -> dict[str, Any]:
    """What `save_capture` wrote; CheckpointError for anything else."""
    try:
        # non-blocking: a named pipe must not hang the reader
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            blob = _read_checked(file, f"'{path}'")
    except OSError as error:
        raise CheckpointError(f"cannot read '{path}': {error.strerror}") from error
    arrays = {name: np.array(array) for name, array in parse_blob(blob, f"'{path}'").items()}
    arrays.pop(SEAL, None)
    if META not in arrays:
        raise CheckpointError(f"'{path}' is not a captured update; debug mode writes them as debug/update_*.capture")
    meta = parse_json(arrays.pop(META).tobytes(), f"'{path}'")
    try:
        return unflatten(FlatState(arrays, meta["scalars"], meta["aliases"], meta["dtypes"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"'{path}' is damaged ({type(error).__name__})") from error


def _read_checked(file: BinaryIO, what: str) -> Array:
    """The bytes of a capture; header, length and checksum are verified before memory for all of it is allocated."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{what} is not a regular file")
    header, begin = read_header(file, status.st_size, what)
    if META not in header:
        raise CheckpointError(f"{what} is not a captured update; debug mode writes them as debug/update_*.capture")
    refuse_beyond_memory(what, status.st_size)
    if SEAL in header:  # captures of 0.1.0 have none
        _check_seal(file, begin + _seal_offset(header[SEAL], what), what)
    file.seek(0)
    return np.fromfile(file, np.uint8, status.st_size)


def _seal_offset(entry: Any, what: str) -> int:
    try:
        begin, end = entry["data_offsets"]
        if entry["dtype"] == "U8" and type(begin) is type(end) is int and 0 <= begin == end - SEAL_BYTES:
            return int(begin)
    except (KeyError, TypeError, ValueError):
        pass
    raise CheckpointError(f"{what} has no readable checksum")


def _check_seal(file: BinaryIO, offset: int, what: str) -> None:
    file.seek(offset)
    stored = file.read(SEAL_BYTES)
    digest = hashlib.sha256()
    file.seek(0)
    left = offset
    while left and (chunk := file.read(min(CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
    file.seek(offset + SEAL_BYTES)
    digest.update(bytes(SEAL_BYTES))
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    if digest.digest() != stored:
        raise CheckpointError(f"{what} is damaged: checksum differs")
