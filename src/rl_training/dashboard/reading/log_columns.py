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
    found, odd = _positions(data, STEPS), set[int]()
    lines = np.searchsorted(ends, found)
    odd.update(np.flatnonzero(np.bincount(lines, minlength=len(ends)) != 1).tolist())
    if not data.isascii() or b"\0" in data:
        odd.update(np.searchsorted(ends, np.flatnonzero((raw > 127) | (raw == 0))).tolist())
    odd.update(np.flatnonzero((raw[starts] != 123) | (raw[np.maximum(ends - 1, starts)] != 125)).tolist())  # { and }
    for name, column in columns.items():
        places = found if name == STEPS else _positions(data, name)
        _fill(column, data, places, lines if name == STEPS else np.searchsorted(ends, places), name, odd)
    for line in odd:
        row = parse_row(data[starts[line] : ends[line] + 1])
        for name, column in columns.items():
            column[line] = np.nan if row is None else _value(row, name)
    return columns


def _key(name: str) -> bytes:
    return json.dumps(name).encode() + b":"


def _positions(data: bytes, name: str) -> list[int]:
    """Where the key of a metric stands. Quotes inside of strings are escaped, so the text is always a key."""
    key = _key(name)
    found, place = [], data.find(key)
    while place >= 0:
        found.append(place)
        place = data.find(key, place + len(key))
    return found


def _fill(column: Array, data: bytes, places: Sequence[int], lines: Array, name: str, odd: set[int]) -> None:
    width = len(_key(name))
    for place, line in zip(places, lines.tolist(), strict=True):
        piece = data[place + width : place + width + VALUE_BYTES]
        stop = piece.find(b",")
        text = piece[:stop] if stop >= 0 else piece[: max(piece.find(b"}"), 0)]
        if text == b"null":
            column[line] = math.inf
            continue
        try:
            value = float(text)
        except ValueError:
            odd.add(line)
            continue
        if b"_" in text or not math.isfinite(value) or (name == STEPS and not (text.isdigit() and value < 2**53)):
            odd.add(line)
        column[line] = value


def _value(row: dict[str, object], name: str) -> float:
    value = steps_of(row) if name == STEPS else number_of(row, name)
    if value is not None:
        return float(value)
    logged = row.get(name, 0)
    is_null = name in row and (logged is None or (isinstance(logged, float) and not math.isfinite(logged)))
    return math.inf if is_null else math.nan
