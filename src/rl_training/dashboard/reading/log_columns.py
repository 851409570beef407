"""Columns of a metrics log: the values of single metrics, found in the text of its rows without parsing them.

A row has some forty metrics and a plot needs two. The rows of our own writer are flat and have no spaces, so the text
`"name":` marks a value; lines that look otherwise are parsed as JSON. Pure functions on bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from rl_training.system.json_lines import number_of, parse_row, steps_of
from rl_training.types import Array

STEPS = "env_steps"
VALUE_BYTES = 40
"""Longest number; what is longer is read as JSON."""


def parse_columns(data: bytes, names: Sequence[str]) -> dict[str, Array]:
    """The values (rows,) of each metric in complete lines: NaN where a row has none, +inf where the value is null,
    which is how NaN and Inf are logged.

    >>> found = parse_columns(b'{"env_steps":1,"a":2.5}\\n{"env_steps":2,"a":null}\\n{"env_steps":3}\\n', ["a"])
    >>> found["a"].tolist()
    [2.5, inf, nan]
    """
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == 10)
    columns = {name: np.full(len(ends), np.nan) for name in names}
    if not len(ends):
        return columns
    starts = np.concatenate([[0], ends[:-1] + 1])
    odd = _odd_lines(data, raw, starts, ends)
    for name, column in columns.items():
        places = (starts + 1).tolist() if name == STEPS else _positions(data, name)
        lines = np.arange(len(ends)) if name == STEPS else np.searchsorted(ends, places)
        values, strange = _values(data, places, name)
        column[lines] = values
        odd.update(lines[strange].tolist())
    for line in odd:
        row = parse_row(data[starts[line] : ends[line] + 1])
        for name, column in columns.items():
            column[line] = np.nan if row is None else _value(row, name)
    return columns


def _odd_lines(data: bytes, raw: Array, starts: Array, ends: Array) -> set[int]:
    """Lines that our writer has not written as they are: they do not begin with the env steps, have them twice (a torn
    line with the next one behind it), do not end with a brace, or have bytes that are no ASCII text."""
    prefix = b"{" + _key(STEPS)
    is_odd = raw[np.maximum(ends - 1, starts)] != ord("}")
    fits = starts + len(prefix) <= ends
    is_odd |= ~fits
    for i, letter in enumerate(prefix):
        is_odd[fits] |= raw[starts[fits] + i] != letter
    if data.count(prefix[1:]) != int((~is_odd).sum()):
        found = np.bincount(np.searchsorted(ends, _positions(data, STEPS)), minlength=len(ends))
        is_odd |= found[: len(ends)] != 1
    odd = set(np.flatnonzero(is_odd).tolist())
    if not data.isascii() or b"\0" in data:
        odd.update(np.searchsorted(ends, np.flatnonzero((raw > 127) | (raw == 0))).tolist())
    return odd


def _key(name: str) -> bytes:
    return json.dumps(name).encode() + b":"


def _positions(data: bytes, name: str) -> list[int]:
    """Where the key of a metric stands. Quotes inside of strings are escaped, so the text is always a key."""
    key = _key(name)
    width, find = len(key), data.find
    found, place = [], find(key)
    while place >= 0:
        found.append(place)
        place = find(key, place + width)
    return found


def _values(data: bytes, places: Sequence[int], name: str) -> tuple[list[float], list[int]]:
    """The numbers behind keys, and the numbers of the places where the text is none, which JSON has to read."""
    width, is_count = len(_key(name)), name == STEPS
    values: list[float] = []
    strange: list[int] = []
    for number, place in enumerate(places):
        text = data[place + width : place + width + VALUE_BYTES].partition(b",")[0]
        if b"}" in text:  # the last metric of its row
            text = text.partition(b"}")[0]
        try:
            value = float(text)
            if value - value != 0.0 or b"_" in text or (is_count and not (text.isdigit() and value < 2**53)):
                strange.append(number)
        except ValueError:
            value = math.inf
            if text != b"null":
                strange.append(number)
        values.append(value)
    return values, strange


def _value(row: dict[str, object], name: str) -> float:
    value = steps_of(row) if name == STEPS else number_of(row, name)
    if value is not None:
        return float(value)
    logged = row.get(name, 0)
    is_null = name in row and (logged is None or (isinstance(logged, float) and not math.isfinite(logged)))
    return math.inf if is_null else math.nan
