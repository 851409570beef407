"""flatten and unflatten are exact inverses, and a value that would not round-trip is refused with its path."""

from __future__ import annotations

import json
import math
import struct
from collections import OrderedDict
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import assert_same, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from rl_training.checkpointing.state_tree import BFLOAT16_BITS, MAX_DEPTH, FlatState, flatten, is_bfloat16, unflatten
from rl_training.types import CheckpointError

INTEGERS = ["?", "u1", "i1", "<u2", ">u2", "<i2", "<u4", ">i4", "<u8", ">u8", "<i8"]
DTYPES = [*INTEGERS, "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c8", "<c16"]
LAYOUTS = {
    "as is": lambda a: a,
    "transposed": lambda a: a.T,
    "Fortran": np.asfortranarray,
    "every second": lambda a: a[::2] if a.ndim else a,
    "backwards": lambda a: a[..., ::-1] if a.ndim else a,
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Any bits (NaN payloads too) in any shape, dtype, byte order and layout."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    raw = rng.integers(0, 256, math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    if dtype == np.bool_:
        raw &= 1
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](raw.view(dtype).reshape(shape))


KEYS = st.text(alphabet=st.characters(codec=None), max_size=4) | st.sampled_from(
    ["", "/", ".", "a/b", "a.b", "~", "~0", "~1", "$", "$array", "$$int", "$float", "__metadata__", "..", "\ud800"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(alphabet=st.characters(codec=None), max_size=5)
)
STATES = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS | arrays(),
        lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=3),
        max_leaves=8,
    ),
    max_size=5,
)


def through_json(flat: FlatState) -> FlatState:
    """The state after a round trip through a file: strict JSON and copies of the arrays."""
    scalars, aliases, dtypes = json.loads(json.dumps([flat.scalars, flat.aliases, flat.dtypes], allow_nan=False))
    return FlatState({name: array.copy() for name, array in flat.arrays.items()}, scalars, aliases, dtypes)


@settings(max_examples=200, deadline=None)
@given(STATES)
def test_round_trip_is_the_identity(state: dict[str, Any]) -> None:
    flat = flatten(state)
    for array in flat.arrays.values():
        assert array.flags.c_contiguous
        assert array.dtype.byteorder in "<|="
        assert array.dtype.kind in "buif"
    assert_same(unflatten(through_json(flat)), state)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_and_shape_in_every_layout(layout: str) -> None:
    shapes = [(), (0,), (3, 0, 2), (5,), (3, 4)]
    state = {
        f"{dtype} {shape}": LAYOUTS[layout](np.arange(math.prod(shape)).reshape(shape).astype(dtype))
        for dtype in DTYPES
        for shape in shapes
    }
    assert_same(unflatten(through_json(flatten(state))), state)


def test_names_and_scalars_by_hand() -> None:
    state = {
        "net": {"0.weight": np.zeros(2), "a/b": np.ones(1), "": np.ones(1), "~": [np.ones(1)]},
        "__metadata__": np.ones(1),
    }
    assert list(flatten(state).arrays) == ["net/0.weight", "net/a~1b", "net/", "net/~0/0", "~2metadata__"]
    flat = flatten({"n": 3, "big": 2**64, "nan": math.nan, "low": -math.inf, "$array": "x", "empty": {}})
    assert flat.arrays == {}
    assert flat.scalars == {
        "n": 3,
        "big": {"$int": "0x10000000000000000"},
        "nan": {"$float": "7ff8000000000000"},
        "low": {"$float": "fff0000000000000"},
        "$$array": "x",
        "empty": {},
    }


def test_integers_of_any_length_and_nan_payloads_survive() -> None:
    quiet = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_BEEF))[0]
    state = {"long": -(7**20_000), "limits": [2**63 - 1, 2**63, -(2**63), -(2**63) - 1], "nan": quiet, "zero": -0.0}
    assert_same(unflatten(through_json(flatten(state))), state)


def test_tied_arrays_are_stored_once_and_come_back_as_one_object() -> None:
    weight = np.arange(6.0).reshape(2, 3)
    state = {
        "actor": {"w": weight},
        "critic": {"w": weight},
        "view": weight[:],
        "other": weight.copy(),
        "turned": weight.T,
    }
    flat = flatten(state)
    assert list(flat.arrays) == ["actor/w", "other", "turned"]
    assert flat.aliases == {"critic/w": "actor/w", "view": "actor/w"}
    back = unflatten(through_json(flat))
    assert_same(back, state)
    assert back["actor"]["w"] is back["critic"]["w"]
    assert back["actor"]["w"] is back["view"]
    assert not np.shares_memory(back["other"], back["view"])


def test_what_only_looks_tied_stays_apart() -> None:
    empty = np.zeros((0, 3))
    bits = np.arange(3, dtype=np.uint16)
    state = {
        "yes": np.True_,
        "also": np.True_,
        "empty": empty,
        "the same empty": empty,
        "other empty": np.zeros((0, 3)),
        "bits": bits,
        "half": bits.view(BFLOAT16_BITS),
        "first": bits[:1],
    }
    back = unflatten(through_json(flatten(state)))
    assert back["yes"] is not back["also"]
    assert back["empty"] is back["the same empty"]
    assert back["empty"] is not back["other empty"]
    assert not is_bfloat16(back["bits"])
    assert is_bfloat16(back["half"])
    assert back["bits"].shape == (3,)
    assert back["first"].shape == (1,)


def test_objects_that_turn_into_arrays_are_taken_as_arrays() -> None:
    class Lazy:
        """An object whose array is computed again at each conversion, like that of an accelerator."""

        def __init__(self, value: float) -> None:
            self.value = value

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return np.full(100_000, self.value)[::-1]

    back = unflatten(flatten({str(i): Lazy(i) for i in range(20)}))
    assert [back[str(i)][0] for i in range(20)] == list(range(20))


def test_numpy_scalars_become_arrays_without_dimensions() -> None:
    back = unflatten(flatten({"f": np.float32(0.1), "i": np.int64(-3), "d": np.float64(math.nan)}))
    assert_same(back, {"f": np.array(0.1, np.float32), "i": np.array(-3), "d": np.array(math.nan)})


def test_bfloat16_is_stored_as_its_bits() -> None:
    bits = np.array([0x3F80, 0xC000, 0x7FC0, 0xFF80], np.uint16)  # 1, -2, NaN, -inf
    marked = bits.view(BFLOAT16_BITS)
    sources = {"marked": marked, "strided": np.repeat(marked, 2)[::2], "empty": marked[:0]}
    if find_spec("ml_dtypes"):
        import ml_dtypes

        sources["ml_dtypes"] = bits.view(ml_dtypes.bfloat16)
    flat = flatten(dict(sources))
    assert set(flat.dtypes.values()) == {"bfloat16"}
    assert all(array.dtype == np.uint16 and array.dtype.metadata is None for array in flat.arrays.values())
    back = unflatten(through_json(flat))
    again = flatten(back)
    for name in sources:
        assert is_bfloat16(back[name])
        assert again.arrays[name].tolist() == ([] if name == "empty" else bits.tolist())
    assert again.dtypes == flat.dtypes


def test_ordered_dicts_come_back_as_dicts_in_their_order() -> None:
    back = unflatten(flatten({"net": OrderedDict([("z", 1), ("a", 2)])}))
    assert type(back["net"]) is dict
    assert list(back["net"]) == ["z", "a"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({0: 1}, "has the key 0 (int)"),
        ({None: 1}, "has the key None"),
        (np.array([object()]), "dtype object"),
        (np.array(["text"]), "dtype <U4"),
        (np.zeros(1, "M8[s]"), "dtype datetime64"),
        (np.zeros(1, [("x", "f4")]), "dtype [('x', '<f4')]"),
        (np.zeros(1, np.longdouble), "dtype"),
        (np.ma.masked_array([1.0], [True]), "is a MaskedArray"),
        ((1, 2), "is a tuple; use a list"),
        ({1}, "is a set"),
        (b"raw", "is a bytes; use a uint8 array"),
        (object(), "is a object"),
        (len, "builtin_function_or_method"),
    ],
)
def test_refusals_name_the_path(value: Any, words: str) -> None:
    message = refusal(lambda: flatten({"optim/izer": {"state": value}}))
    assert "'optim~1izer/state'" in message
    assert words in message


def test_depth_and_circles_are_refused() -> None:
    state: dict[str, Any] = {}
    deepest = state
    for _ in range(MAX_DEPTH - 1):
        deepest["k"] = {}
        deepest = deepest["k"]
    deepest["number"] = 2**70
    deepest["array"] = np.ones(1)
    assert_same(unflatten(through_json(flatten(state))), state)
    deepest["k"] = {"k": 1}
    assert "nested more than 64 levels" in refusal(lambda: flatten(state))
    deepest["k"] = state
    assert "contains itself" in refusal(lambda: flatten(state))
    assert "a state is a dict" in refusal(lambda: flatten([1]))  # type: ignore[arg-type]


def deep(levels: int) -> Any:
    node: Any = 1
    for _ in range(levels):
        node = [node]
    return {"a": node}


ONE = {"a": np.zeros(2)}


@pytest.mark.parametrize(
    "flat",
    [
        FlatState({}, {"a": {"$array": "a"}}, {}, {}),
        FlatState({}, {"a": {"$array": 3}}, {}, {}),
        FlatState({}, {"a": {"$array": ["a"]}}, {}, {}),
        FlatState(ONE, {}, {}, {}),
        FlatState(ONE, {"a": {"$array": "a"}}, {"b": "a"}, {}),
        FlatState(ONE, {"a": {"$array": "a"}}, {"a": "a"}, {}),
        FlatState(ONE, {"a": {"$array": "b"}}, {"b": "c"}, {}),
        FlatState(ONE, {"a": {"$array": "a"}}, {}, {"a": "bfloat16"}),
        FlatState(ONE, {"a": {"$array": "a"}}, {}, {"a": "complex64"}),
        FlatState({"a": np.zeros(())}, {"a": {"$array": "a"}}, {}, {"a": "complex128"}),
        FlatState(ONE, {"a": {"$array": "a"}}, {}, {"a": "object"}),
        FlatState(ONE, {"a": {"$array": "a"}}, {}, {"b": "bfloat16"}),
        FlatState({}, {"$object": "os:system"}, {}, {}),
        FlatState({}, {"a": {"$int": 5}}, {}, {}),
        FlatState({}, {"a": {"$int": "0b1"}}, {}, {}),
        FlatState({}, {"a": {"$int": " 0x1"}}, {}, {}),
        FlatState({}, {"a": {"$float": "nan"}}, {}, {}),
        FlatState({}, {"a": {"$float": None}}, {}, {}),
        FlatState({}, deep(MAX_DEPTH + 5), {}, {}),
        FlatState({}, [], {}, {}),  # type: ignore[arg-type]
    ],
)
def test_pieces_that_do_not_belong_together_are_refused(flat: FlatState) -> None:
    with pytest.raises(CheckpointError):
        unflatten(flat)
