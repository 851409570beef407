"""Rows become plain JSON lines, and the file knows its length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.system.json_lines import (
    AppendFile,
    encode_row,
    eval_name,
    first_bad_row,
    number_of,
    plain_row,
    read_rows,
    steps_of,
    tail_rows,
    whole_rows,
)
from rl_training.types import RunError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array(3.5), 3.5),
        (np.array([1, 2]), [1, 2]),
        (torch.tensor(0.25, requires_grad=True), 0.25),
        (torch.tensor(1.5, dtype=torch.bfloat16), 1.5),
        (torch.tensor([[1.0], [2.0]]), [[1.0], [2.0]]),
        ((np.float32(2.0), 3), [2.0, 3]),
        ("text", "text"),
        (None, None),
        (2**70, 2**70),
    ],
    ids=repr,
)
def test_values_become_plain(value: Any, expected: Any) -> None:
    plain = plain_row({"x": value})["x"]
    assert plain == expected
    assert type(plain) is type(expected)


def test_nested_mappings_become_flat_keys() -> None:
    assert plain_row({"a": {"b": np.float32(1.0), "c": {"d": 2}}, "e": 3}) == {"a/b": 1.0, "a/c/d": 2, "e": 3}


def test_what_cannot_be_logged_is_named() -> None:
    with pytest.raises(TypeError, match=r"cannot log 'train/model': it is a object; log numbers, strings"):
        plain_row({"train/model": object()})


def test_nan_and_infinity_are_null_and_keep_their_key() -> None:
    line = encode_row({"a": float("nan"), "b": [1.0, float("inf")], "c": -0.0})
    assert line == b'{"a":null,"b":[1.0,null],"c":-0.0}\n'
    assert plain_row({"a": torch.tensor(float("nan"))}, finite=True) == {"a": None}


def test_floats_survive_exactly() -> None:
    values = np.random.default_rng(0).normal(size=100).astype(np.float32)
    row = {str(i): value for i, value in enumerate(values)}
    assert [np.float32(value) for value in json.loads(encode_row(plain_row(row))).values()] == list(values)


def test_names_of_evaluation_fields() -> None:
    assert [eval_name(key) for key in ("env_steps", "return_mean", "eval/return_iqm")] == [
        "env_steps",
        "eval/return_mean",
        "eval/return_iqm",
    ]


def test_append_file_counts_what_is_buffered_and_can_be_cut_back(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "rows")
    file.append(b"one\n")
    assert file.length() == 4
    assert (tmp_path / "rows").read_bytes() == b""
    file.flush()
    file.append(b"two\n")
    file.truncate(2)
    file.append(b"!")
    file.close()
    file.close()
    assert (tmp_path / "rows").read_bytes() == b"on!"


def test_a_row_after_one_that_was_cut_off_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":')
    for number in (2, 3):
        file = AppendFile(path)
        file.end_line()
        file.append(encode_row({"a": number}))
        file.close()
    assert [row["a"] for row in read_rows(path)] == [1, 2, 3]


def test_a_full_disk_is_a_run_error_with_the_cure() -> None:
    file = AppendFile(Path("/dev/full"))
    file.append(b"row\n")
    with pytest.raises(RunError, match=r"cannot write '/dev/full': No space left on device; free some space"):
        file.flush()
    with pytest.raises(RunError):
        file.close()


DAMAGED = [b"", b"{", b'{"env_steps":3}x', b"[1]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"env_steps":3}\r{"a":1}']
"""Lines that are not rows."""


@pytest.mark.parametrize("line", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_lines_are_skipped_by_every_reader(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"env_steps":1}\n' + line + b'\n{"env_steps":2}\n{"env_st')
    assert list(read_rows(path)) == [{"env_steps": 1}, {"env_steps": 2}]
    assert tail_rows(path)[-1:] == [{"env_steps": 2}]
    assert first_bad_row(path) == 2
    assert whole_rows(path) == path.stat().st_size - len(b'{"env_st')


def test_the_end_of_the_last_whole_row_is_found_far_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{}\n" + b"x" * 200_000)
    assert whole_rows(path) == 3
    path.write_bytes(b"x" * 200_000)
    assert whole_rows(path) == 0


def test_numbers_of_rows_that_a_damaged_file_gave() -> None:
    row = {"env_steps": "3", "a": [1], "b": True, "c": None, "d": 10**400, "e": float("inf"), "f": -1, "g": 2.5}
    assert [number_of(row, name) for name in "abcdefg"] == [None, None, None, None, None, -1, 2.5]
    assert [steps_of(each) for each in (row, {"env_steps": -1}, {"env_steps": 1e999}, {}, {"env_steps": 7})] == [
        *([None] * 4),
        7,
    ]
