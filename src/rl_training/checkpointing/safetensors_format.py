"""Arrays as the bytes of a safetensors file, written without copying and read with every bound checked.

The format: header length (8 bytes, little-endian), a JSON header {name: {dtype, shape, data_offsets}}, the arrays. The
safetensors library reads these files. It is not used here because it copies every array when reading and writing, and
the bytes could not be hashed in between. Not here: checksums and files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from rl_training.checkpointing.state_tree import dump_json, parse_json
from rl_training.types import Array, CheckpointError

MAX_HEADER_BYTES = 32 * 2**20
DTYPES = {
    "BOOL": np.dtype("<b1"),
    "U8": np.dtype("<u1"),
    "I8": np.dtype("<i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def blob_chunks(arrays: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    """The file's bytes in order: the header, then the memory of each array. Takes arrays as `flatten` returns them."""
    # the widest dtype first, so that every array is aligned to its item size without padding
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {}
    offset = 0
    for name in order:
        array = arrays[name]
        end = offset + array.nbytes
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = dump_json(header).rstrip()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise CheckpointError(f"{len(order)} arrays in one part are too many for one file; join small arrays")
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield arrays[name].reshape(-1).view(np.uint8).data


def read_header(file: BinaryIO, size: int, what: str) -> tuple[dict[str, Any], int]:
    """The header of an open file of `size` bytes and the offset of its arrays, which are not read."""
    length = _header_length(file.read(8), size, what)
    return _parse_header(file.read(length), what), 8 + length


def parse_blob(blob: Array, what: str) -> dict[str, Array]:
    """The arrays in a file's bytes (flat uint8), as views. CheckpointError if anything in it is invalid."""
    length = _header_length(blob[:8].tobytes(), len(blob), what)
    header = _parse_header(blob[8 : 8 + length].data, what)
    data = blob[8 + length :]
    arrays = {}
    spans = []
    for name, entry in header.items():
        try:
            dtype, shape, begin, end = _entry(entry)
            if end > len(data) or end - begin != math.prod(shape) * dtype.itemsize:
                raise ValueError("offsets and shape disagree")
            raw = data[begin:end]
            if dtype == np.bool_ and raw.size and raw.max() > 1:
                raise ValueError("a boolean that is neither 0 nor 1")
            arrays[name] = raw.view(dtype).reshape(shape)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise CheckpointError(f"array {name[:80]!r} of {what} is malformed: {error}") from error
        spans.append((begin, end))
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            raise CheckpointError(f"the arrays of {what} overlap or leave gaps")
        position = end
    if position != len(data):
        raise CheckpointError(f"{what} has {len(data) - position} bytes that belong to no array")
    return arrays


def _header_length(beginning: bytes, size: int, what: str) -> int:
    length = int.from_bytes(beginning, "little")
    if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
        raise CheckpointError(f"{what} has no valid header length")
    return length


def _parse_header(text: bytes | memoryview, what: str) -> dict[str, Any]:
    header = parse_json(text, f"the header of {what}")
    if not isinstance(header, dict):
        raise CheckpointError(f"the header of {what} is not a table of arrays")
    return header


def _entry(entry: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    dtype = DTYPES[entry["dtype"]]
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not (isinstance(shape, list) and isinstance(offsets, list) and len(shape) <= 64):
        raise ValueError("shape and data_offsets must be lists")
    begin, end = offsets
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)) or begin > end:
        raise ValueError("shape and data_offsets must be numbers from 0")
    return dtype, tuple(shape), begin, end
