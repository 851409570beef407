"""Flatten a part's state (nested dicts of arrays and JSON scalars) into arrays and JSON, and unflatten it again.

`unflatten(flatten(state))` equals `state` bit for bit: dtypes, shapes, NaN payloads, integers of any size, key order,
and arrays that were one object (tied weights) are one object again. A value that would not round-trip is refused, with
its path. A `RowLog` is kept apart, to be written incrementally. Not here: files. This module imports neither torch nor
JAX; it recognises their arrays by their methods.
"""

from __future__ import annotations

import json
import math
import re
import struct
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from rl_training.checkpointing.row_log import RowLog, RowSource
from rl_training.types import Array, CheckpointError, StateDict

MAX_DEPTH = 64
"""Levels of nesting; deeper state is a bug (or a cycle) when saved and an attack when loaded."""

PLAIN_DTYPES = tuple(
    np.dtype("<" + code) for code in ("b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")
)
BFLOAT16_BITS = np.dtype(np.uint16, metadata={"logical": "bfloat16"})
"""dtype of loaded bfloat16 arrays where the package ml_dtypes is missing: their bits, marked; see `is_bfloat16`."""
COMPLEX: dict[str, np.dtype[Any]] = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}

ARRAY, INT, FLOAT, ROWS = "$array", "$int", "$float", "$rows"
CURES = {"tuple": "use a list", "set": "use a sorted list", "bytes": "use a uint8 array"}
HEX_INT = re.compile(r"-?0x[0-9a-f]+")
Leaves = dict[tuple[str, str], Any]
"""Leaves that JSON cannot hold: (mark, path) to an array or a row log."""
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class FlatState(NamedTuple):
    """One part, flattened. The arrays may be views of the state itself: write or hash them, do not keep them."""

    arrays: dict[str, Array]
    """Plain dtypes, C order, little-endian, by path: keys joined by "/", "~" and "/" inside a key as "~0" and "~1"."""
    scalars: dict[str, Any]
    """The tree as strict JSON. {"$array": path} stands for an array, $int and $float for numbers JSON cannot hold."""
    aliases: dict[str, str]
    """Paths of tied arrays to the path under which the array is stored."""
    dtypes: dict[str, str]
    """Logical dtypes of arrays stored in another one: bfloat16 as uint16, complex numbers as pairs of floats."""
    logs: Mapping[str, RowSource] = MappingProxyType({})
    """Row logs by path; {"$rows": path} stands for one in the scalars."""


def flatten(state: StateDict) -> FlatState:
    """Flatten `state`. CheckpointError names the path of what is not an array, a JSON scalar, a list or a dict."""
    if not isinstance(state, dict):
        _refuse((), f"is a {type(state).__name__}; a state is a dict")
    walker = _Flattener()
    scalars = walker.encode(state, ())
    return FlatState(walker.arrays, scalars, walker.aliases, walker.dtypes, walker.logs)


def unflatten(flat: FlatState) -> StateDict:
    """The inverse of `flatten`. CheckpointError if the pieces are inconsistent."""
    arrays = {name: _logical(array, flat.dtypes.get(name), name) for name, array in flat.arrays.items()}
    for name, stored in flat.aliases.items():
        if name in flat.arrays or stored not in flat.arrays:
            raise CheckpointError(f"array {name!r} is said to be the same as {stored!r}, which cannot be")
        arrays[name] = arrays[stored]
    leaves: Leaves = {(ARRAY, name): array for name, array in arrays.items()}
    leaves.update({(ROWS, name): log for name, log in flat.logs.items()})
    unused = set(leaves)
    state = _decode(flat.scalars, leaves, unused, 0)
    if not isinstance(state, dict):
        raise CheckpointError(f"the state is a {type(state).__name__}, not a dict")
    if unused or set(flat.dtypes) - set(flat.arrays):
        names = {name for _, name in unused}
        raise CheckpointError(f"arrays without a place in the state: {_first(names or set(flat.dtypes))}")
    return state


def is_bfloat16(array: Array) -> bool:
    """True for both dtypes of loaded bfloat16 arrays, ml_dtypes or marked uint16. Its bits: `array.view("u2")`."""
    metadata: Mapping[str, Any] = array.dtype.metadata or {}
    return array.dtype.name == "bfloat16" or metadata.get("logical") == "bfloat16"


def encode_json(value: Any, what: str) -> Any:
    """A tree of JSON scalars as strict JSON; NumPy scalars become Python's. For metadata, which holds no arrays."""
    walker = _Flattener(scalars_only=True)
    return walker.encode(value, (what,))


def decode_json(value: Any) -> Any:
    """The inverse of `encode_json`."""
    return _decode(value, {}, set(), 0)


def dump_json(value: Any, indent: int | None = None) -> bytes:
    """Strict JSON (no NaN) in ASCII, one trailing newline."""
    separators = (",", ":") if indent is None else None
    return (json.dumps(value, allow_nan=False, indent=indent, separators=separators) + "\n").encode("ascii")


def parse_json(data: bytes | memoryview, what: str) -> Any:
    """Strict JSON from untrusted bytes; every failure is a CheckpointError."""
    try:
        return json.loads(str(data, "utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError, MemoryError) as error:
        raise CheckpointError(f"{what} is not valid JSON ({type(error).__name__})") from error


# -- flattening -------------------------------------------------------------------------------------------------------


class _Flattener:
    def __init__(self, *, scalars_only: bool = False) -> None:
        self.arrays: dict[str, Array] = {}
        self.aliases: dict[str, str] = {}
        self.dtypes: dict[str, str] = {}
        self.logs: dict[str, RowLog] = {}
        self._scalars_only = scalars_only
        self._names: dict[Any, str] = {}
        # tied arrays are identified by their address, so none may be freed (and its address reused) before the end
        self._alive: list[Any] = []

    def encode(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if len(path) > MAX_DEPTH:
            _refuse(path[:4], f"is nested more than {MAX_DEPTH} levels deep, or contains itself")
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else {INT: hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {FLOAT: struct.pack(">d", value).hex()}
        if isinstance(value, dict):
            return {_json_key(key, path): self.encode(item, (*path, key)) for key, item in value.items()}
        if kind is list:
            return [self.encode(item, (*path, str(i))) for i, item in enumerate(value)]
        if self._scalars_only:
            if isinstance(value, np.generic):
                return self.encode(value.item(), path)
            _refuse(path, f"is a {kind.__name__}; only JSON scalars, lists and dicts can stand here")
        if isinstance(value, RowLog):
            return self._encode_log(value, path)
        return self._encode_array(value, path)

    def _encode_log(self, log: RowLog, path: tuple[str, ...]) -> dict[str, str]:
        for name, column in log.columns.items():
            if column.dtype not in PLAIN_DTYPES or not column.flags.c_contiguous:
                _refuse((*path, name), f"has dtype {column.dtype}; a log of rows needs plain dtypes in C order")
        name = _array_name(path)
        self.logs[name] = log
        return {ROWS: name}

    def _encode_array(self, value: Any, path: tuple[str, ...]) -> dict[str, str]:
        array, identity = _as_numpy(value, path)
        self._alive += [value, array]
        name = _array_name(path)
        if identity in self._names:
            self.aliases[name] = self._names[identity]
        else:
            self._names[identity] = name
            self.arrays[name], logical = _physical(array, path)
            if logical:
                self.dtypes[name] = logical
        return {ARRAY: name}


def _as_numpy(value: Any, path: tuple[str, ...]) -> tuple[Array, Any]:
    """The value as an ndarray, without a copy where possible, and a key that is equal for tied arrays."""
    try:
        if type(value) in (np.ndarray, np.memmap) or isinstance(value, np.generic):
            array = np.asarray(value)
        elif hasattr(value, "detach") and hasattr(value, "cpu"):
            array = _from_torch(value)
            if value.device.type != "cpu" and value.numel():
                # the array is a copy in host memory; tied tensors share the address on the device
                return array, (value.device, value.data_ptr(), value.shape, value.stride(), value.dtype)
        elif hasattr(value, "__array__") and not isinstance(value, np.ndarray):
            return np.asarray(value), id(value)
        else:
            kind = type(value).__name__
            _refuse(path, f"is a {kind}; {CURES.get(kind, 'state holds arrays, JSON scalars, lists and dicts')}")
    except (TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"state {_place(path)} ({type(value).__name__}) is not a dense array: {error}") from error
    if isinstance(value, np.generic):
        return array, object()  # scalars are never tied, though np.True_ is one object everywhere
    if array.size == 0:
        return array, id(value)  # empty arrays share addresses without being tied
    address = array.__array_interface__["data"][0]
    return array, (address, array.shape, array.strides, array.dtype.str, is_bfloat16(array))


def _from_torch(tensor: Any) -> Array:
    if str(tensor.dtype) != "torch.bfloat16":
        array: Array = tensor.numpy(force=True)
        return array
    bits: Array = tensor.detach().cpu().view(sys.modules["torch"].int16).numpy()
    return bits.view(BFLOAT16_BITS)


def _physical(array: Array, path: tuple[str, ...]) -> tuple[Array, str | None]:
    """The array in a plain little-endian dtype and C order, and its logical dtype if that differs."""
    logical: str | None = None
    if is_bfloat16(array):
        array, logical = array.view(np.uint16), "bfloat16"
    elif array.dtype.name in COMPLEX:
        logical = array.dtype.name
        array = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        array = array.reshape(*array.shape, 1).view(COMPLEX[array.dtype.name])
    little = array.dtype.newbyteorder("<")
    if little not in PLAIN_DTYPES:
        _refuse(path, f"has dtype {array.dtype}; bool, integers, floats up to 64 bit and complex numbers can be saved")
    return np.asarray(array, dtype=little, order="C"), logical


def _json_key(key: Any, path: tuple[str, ...]) -> str:
    if type(key) is not str:
        why = f"has the key {key!r} ({type(key).__name__}); keys must be str: name optimiser state by parameter"
        _refuse(path, why)
    return "$" + key if key.startswith("$") else key


def _array_name(path: tuple[str, ...]) -> str:
    name = "/".join(key.replace("~", "~0").replace("/", "~1") for key in path)
    name = LONE_SURROGATE.sub(lambda match: f"~x{ord(match[0]):04x}", name)
    return "~2metadata__" if name == "__metadata__" else name  # a name that the safetensors format reserves


def _place(path: tuple[str, ...]) -> str:
    return repr(_array_name(path)) if path else "at its top"


def _refuse(path: tuple[str, ...], why: str) -> NoReturn:
    raise CheckpointError(f"state {_place(path)} {why}")


# -- unflattening -----------------------------------------------------------------------------------------------------


def _decode(node: Any, leaves: Leaves, unused: set[tuple[str, str]], depth: int) -> Any:
    if isinstance(node, (dict, list)) and depth > MAX_DEPTH:
        raise CheckpointError(f"the state is nested more than {MAX_DEPTH} levels deep")
    if isinstance(node, list):
        return [_decode(item, leaves, unused, depth + 1) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1:
        ((key, value),) = node.items()
        if key in (ARRAY, ROWS):
            if not isinstance(value, str) or (key, value) not in leaves:
                raise CheckpointError(f"the state names an array that is not there: {_first({repr(value)})}")
            unused.discard((key, value))
            return leaves[key, value]
        if key in (INT, FLOAT):
            return _decode_number(key, value)
    return {_decode_key(key): _decode(item, leaves, unused, depth + 1) for key, item in node.items()}


def _decode_key(key: str) -> str:
    if not key.startswith("$"):
        return key
    if not key.startswith("$$"):
        raise CheckpointError(f"the state has the unknown mark {key[:40]!r}")
    return key[1:]


def _decode_number(kind: str, value: Any) -> int | float:
    if kind == INT and isinstance(value, str) and HEX_INT.fullmatch(value):
        return int(value, 16)
    if kind == FLOAT and isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value):
        number: float = struct.unpack(">d", bytes.fromhex(value))[0]
        return number
    raise CheckpointError(f"the state has a malformed number {str(value)[:40]!r}")


def _logical(array: Array, logical: str | None, name: str) -> Array:
    if logical is None:
        return array
    if logical == "bfloat16" and array.dtype == np.uint16:
        return array.view(_bfloat16())
    if logical in COMPLEX and array.dtype == COMPLEX[logical] and array.ndim and array.shape[-1] == 2:
        return array.view(logical).reshape(array.shape[:-1])
    raise CheckpointError(f"array {name!r} is {array.dtype} of shape {array.shape}, which cannot hold {logical[:40]}")


def _bfloat16() -> np.dtype[Any]:
    if find_spec("ml_dtypes") is None:
        return BFLOAT16_BITS
    dtype: np.dtype[Any] = np.dtype(import_module("ml_dtypes").bfloat16)
    return dtype


def _first(names: set[str]) -> str:
    return ", ".join(sorted(names)[:3])[:200]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
