"""Formatting of numbers and messages for people. Standard library only."""

from __future__ import annotations

import math
import shutil
import textwrap
from typing import TextIO

LARGE = 10_000
HUGE = 1e9


def number_text(value: float | None) -> str:
    """A return, score or loss with a suitable number of digits; "-" for None.

    >>> [number_text(value) for value in (487.23, 9, 0.0123, 0.0119, 12345.678, 0, None)]
    ['487.2', '9.0', '0.0123', '0.0119', '12,346', '0.0', '-']
    """
    if value is None:
        return "-"
    size = abs(value)
    if not math.isfinite(size) or size >= HUGE:
        return f"{value:.4g}"
    if size >= LARGE:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    text = f"{value:.4g}"
    return text if "." in text or "e" in text else f"{text}.0"


def wrapped(text: str, stream: TextIO) -> str:
    """A message wrapped at words if `stream` is a terminal, else unchanged; a word such as a path is never broken."""
    try:
        is_terminal = stream.isatty()
    except ValueError:  # closed: writing to it says so
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(wrapped_line(line, width) for line in text.split("\n")) if is_terminal else text


def wrapped_line(line: str, width: int) -> str:
    """One line wrapped at words, with its indentation repeated.

    >>> print(wrapped_line("  run  cannot write runs/a-long-path/and-more", 20))
      run  cannot write
      runs/a-long-path/and-more
    """
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())][: width // 2]
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
