"""Our files are valid safetensors files, and every invalid header is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_cases import assert_same, blob, refusal

from rl_training.checkpointing.safetensors_format import DTYPES, blob_chunks, parse_blob
from rl_training.types import CheckpointError


def bytes_of(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.frombuffer(b"".join(blob_chunks(arrays)), np.uint8).copy()


EVERY_DTYPE = {name: np.arange(5).astype(dtype) for name, dtype in DTYPES.items()} | {
    "scalar": np.array(2.5),
    "empty": np.zeros((3, 0, 2), np.float32),
    "odd name /~\u00e9\u4e2d": np.zeros(1, np.uint8),
}


def test_the_safetensors_library_reads_what_we_write() -> None:
    loaded = safetensors.numpy.load(bytes_of(EVERY_DTYPE).tobytes())
    assert set(loaded) == set(EVERY_DTYPE)
    for name, array in EVERY_DTYPE.items():
        assert_same(loaded[name], array)


def test_we_read_what_the_safetensors_library_writes() -> None:
    data = np.frombuffer(safetensors.numpy.save(EVERY_DTYPE), np.uint8)
    assert_same(dict(sorted(parse_blob(data, "f").items())), dict(sorted(EVERY_DTYPE.items())))


def test_arrays_are_aligned_writable_views_of_the_bytes() -> None:
    data = bytes_of(EVERY_DTYPE)
    for name, array in parse_blob(data, "f").items():
        assert array.flags.aligned, name
        assert array.flags.writeable, name
        assert array.size == 0 or np.shares_memory(array, data), name


def test_the_same_arrays_give_the_same_bytes_in_any_order() -> None:
    backwards = dict(reversed(EVERY_DTYPE.items()))
    assert bytes_of(EVERY_DTYPE).tobytes() == bytes_of(backwards).tobytes()


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


DATA = bytes(8)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 7,
        b"\xff" * 8,
        b"\xff" * 100,
        blob(b"{}", DATA),
        blob(b"[]"),
        blob(b"3"),
        blob(b"nul"),
        blob(b'{"a": NaN}'),
        blob(b"\xff\xfe{}"),
        blob(b"[" * 200_000),
        blob(b'{"a":' * 200_000),
        blob(b"9" * 5000),
        blob({"a": 3}, DATA),
        blob({"a": []}, DATA),
        blob({"a": {}}, DATA),
        blob(entry(dtype="OBJECT"), DATA),
        blob(entry(dtype="O"), DATA),
        blob(entry(dtype="BF16"), DATA),
        blob(entry(dtype=["F32"]), DATA),
        blob(entry(dtype="F64"), DATA),
        blob(entry(shape=[3]), DATA),
        blob(entry(shape=[-2]), DATA),
        blob(entry(shape=[-1, -2]), DATA),
        blob(entry(shape=[True, 2]), DATA),
        blob(entry(shape=[2.0]), DATA),
        blob(entry(shape=["2"]), DATA),
        blob(entry(shape="2"), DATA),
        blob(entry(shape={"0": 2}), DATA),
        blob(entry(shape=[2**62, 2**62]), DATA),
        blob(entry(shape=[10**30, 0], offsets=[0, 0])),
        blob(entry(shape=[0, 2**62, 2**62], offsets=[0, 0])),
        blob(entry(shape=[1] * 65 + [2]), DATA),
        blob(entry(offsets=[0, 2**70]), DATA),
        blob(entry(offsets=[-8, 0]), DATA),
        blob(entry(offsets=[8, 0]), DATA),
        blob(entry(offsets=[0, 8, 16]), DATA),
        blob(entry(offsets=[0]), DATA),
        blob(entry(offsets=8), DATA),
        blob(entry(offsets=[4, 12]), bytes(12)),
        blob(entry(), bytes(9)),
        blob(entry(), bytes(7)),
        blob({**entry(), "b": entry()["a"]}, DATA),
        blob(entry(dtype="BOOL", shape=[8]), b"\x00\x01\x02\x00\x00\x00\x00\x00"),
    ],
)
def test_a_false_header_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        parse_blob(np.frombuffer(data, np.uint8), "policy.safetensors")


def test_the_refusal_names_the_array_and_the_file() -> None:
    data = np.frombuffer(blob(entry(shape=[3]), DATA), np.uint8)
    assert "array 'a' of policy.safetensors is malformed: offsets" in refusal(
        lambda: parse_blob(data, "policy.safetensors")
    )
