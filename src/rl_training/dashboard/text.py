"""Values from run directories as JSON that a page can show: no control characters, no NaN, no integers beyond 2^53."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rl_training.system.terminal_text import printable

MAX_ANSWER = 8 * 2**20
"""Bytes of an answer."""
MAX_SAFE = 2**53


class AnswerTooLargeError(Exception):
    """The answer would be larger than `MAX_ANSWER`."""


def plain(value: Any) -> Any:
    """A value with everything in it made safe. Text keeps newlines and tabs; what would turn it round or be obeyed by a
    terminal is escaped."""
    if isinstance(value, str):
        return printable(value, lines=True)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_SAFE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {printable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return printable(str(value))


def encoded(value: Any) -> bytes:
    """A value as JSON; AnswerTooLargeError where it is too large."""
    data = json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode()
    if len(data) > MAX_ANSWER:
        raise AnswerTooLargeError(f"the answer would have {len(data):,} bytes, more than {MAX_ANSWER:,}")
    return data


def short(value: Any, limit: int = 40) -> str:
    """A config value in a few characters: a schedule as its ends, a list without brackets.

    >>> short({"type": "linear", "start": 3e-4, "end": 0}), short([64, 64]), short(0.1), short(None)
    ('linear 0.0003→0', '64, 64', '0.1', '-')
    """
    if isinstance(value, Mapping):
        if {"type", "start", "end"} <= value.keys():
            text = f"{value['type']} {short(value['start'])}→{short(value['end'])}"
        else:
            text = ", ".join(f"{key}={short(item)}" for key, item in value.items() if item is not None)
    elif isinstance(value, list | tuple):
        text = ", ".join(short(item) for item in value)
    elif isinstance(value, float):
        text = f"{value:g}"
    else:
        text = "-" if value is None else str(value)
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
